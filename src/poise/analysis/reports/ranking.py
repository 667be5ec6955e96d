"""Rank groups of runs by one metric, with 95 % intervals and the gap to the best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from poise.analysis.reports.compare import difference
from poise.analysis.reports.estimates import Difference
from poise.analysis.reports.numbers import places_apart, score_text, with_interval
from poise.analysis.reports.rows import Score, ScoreRow, rows_by_data


@dataclass(frozen=True)
class Rank:
    """One place in a ranking.

    Args:
        place: from 1; None without a finite mean.
        row: the scores of the group.
        score: the score that ranks.
        behind: this group minus the best; None for the best and without values.
        places: decimal places with which the ranking shows its order.
    """

    place: int | None
    row: ScoreRow
    score: Score
    behind: Difference | None
    places: int = 0

    @property
    def score_text(self) -> str:
        """The mean ± half its 95 % interval."""
        return score_text(self.score, self.places)

    @property
    def behind_text(self) -> str:
        """The difference to the best ± half its 95 % interval; ``best`` for the best."""
        if self.place == 1:
            return "best"
        if self.behind is None or not math.isfinite(self.behind.mean):
            return "—"
        sign = ""
        if self.behind.mean > 0:
            sign = "+"
        text = with_interval(
            self.behind.mean, self.behind.half_width, places=self.places
        )
        return f"{sign}{text}"


def ranked(rows: Sequence[ScoreRow], score: str) -> list[Rank]:
    """Rank rows by the mean of a score; rows without a finite mean come last.

    The difference to the best is paired where the seeds are equal.
    """
    order = sorted(rows, key=lambda row: _sort_key(row.scores[score]))
    places = places_apart(_mean(row.scores[score]) for row in rows)
    ranks = []
    for number, row in enumerate(order, start=1):
        place = None
        if math.isfinite(_mean(row.scores[score])):
            place = number
        behind = None
        if number > 1:
            behind = difference(row, order[0], score)
        rank = Rank(place, row, score=row.scores[score], behind=behind, places=places)
        ranks.append(rank)
    return ranks


def main_score(rows: Sequence[ScoreRow]) -> str | None:
    """Return the first score for which large or small values are better."""
    if not rows:
        return None
    return next((name for name, s in rows[0].scores.items() if s.better), None)


def _mean(score: Score) -> float:
    """Return the mean of a score; nan without one."""
    estimate = score.estimate
    if estimate is None:
        return math.nan
    return estimate.mean


def _sort_key(score: Score) -> tuple[bool, float]:
    """Return the key of a sort that puts the best mean first."""
    mean = _mean(score)
    if not math.isfinite(mean):
        return True, 0.0
    if score.better == "low":
        return False, mean
    return False, -mean


def ranking_heading(rows: Sequence[ScoreRow], score: str) -> tuple[str, ...]:
    """Return the columns of a ranking: the score that ranks, then the other scores."""
    others = [name for name in rows[0].scores if name != score]
    return ("#", "experiment", score, "to the best", "runs", *others)


def ranking_lines(rows: Sequence[ScoreRow], score: str) -> list[tuple[str, ...]]:
    """Return a ranking as texts, in the columns of `ranking_heading`."""
    others = [name for name in rows[0].scores if name != score]
    lines = []
    for rank in ranked(rows, score):
        row = rank.row
        lines.append(
            (
                str(rank.place or ""),
                row.label,
                rank.score_text,
                rank.behind_text,
                str(len(row.seeds)),
                *(score_text(row.scores[name]) for name in others),
            )
        )
    return lines


def ranking_as_data(rows: Sequence[ScoreRow], score: str | None) -> dict[str, Any]:
    """Return the ranking of more than two rows as plain values for ``--json``.

    Rows with other data have a ranking of their own.
    """
    if score is None or len(rows) <= 2:
        return {}
    labels = {
        data: [rank.row.label for rank in ranked(same, score)]
        for data, same in rows_by_data(rows).items()
    }
    if len(labels) > 1:
        return {"ranked_by": score, "rankings": labels}
    return {"ranked_by": score, "ranking": next(iter(labels.values()))}


__all__ = [
    "Rank",
    "main_score",
    "ranked",
    "ranking_as_data",
    "ranking_heading",
    "ranking_lines",
]
