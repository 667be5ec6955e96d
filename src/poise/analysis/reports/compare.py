"""What can be said about the difference between groups of runs, and what cannot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from poise.analysis.reports.estimates import Difference, paired_difference, welch_difference
from poise.analysis.reports.groups import Group
from poise.analysis.reports.numbers import number
from poise.analysis.reports.rows import Score, ScoreRow, score_table
from poise.core.errors import InvalidOption

_OUTCOMES = ("final ", "half-time ", "rounds to ", "weighted client accuracy", "client loss spread")


@dataclass(frozen=True)
class Contrast:
    """One score of a group against that of the baseline.

    Args:
        score: its name in the table.
        label: of the group.
        baseline: label of the group that it is held against.
        difference: group minus baseline; None where a run lacks the score.
        unit: of the score.
    """

    score: str
    label: str
    baseline: str
    difference: Difference | None
    unit: str = ""

    @property
    def sides(self) -> str:
        """Who is held against whom."""
        return f"{self.label} against {self.baseline}"

    @property
    def finding(self) -> str:
        """What can be said, no stronger than the evidence."""
        d = self.difference
        if d is None:
            return f"{self.score} cannot be compared, not every run has a value"
        if not math.isfinite(d.mean):
            return f"{self.score} cannot be compared, it is not finite in every run"
        way = (
            "equal"
            if d.mean == 0
            else f"{self._say(abs(d.mean))} {'higher' if d.mean > 0 else 'lower'}"
        )
        if d.low is None or d.high is None:
            return f"{self.score} is {way}; a single seed allows no interval, so nothing is claimed"
        pairing = f"paired over {d.n} seeds" if d.method == "paired" else "Welch, seeds not paired"
        interval = f"(95 % CI {self._say(d.low)} to {self._say(d.high)}, {pairing})"
        if not d.significant:
            return f"no significant difference in {self.score} {interval}"
        return f"{self.score} is {way} {interval}"

    @property
    def sentence(self) -> str:
        """The finding, with the names of both sides."""
        return f"{self.sides}: {self.finding}."

    def _say(self, value: float) -> str:
        return number(value, self.unit, digits=3)


@dataclass(frozen=True)
class Comparison:
    """Groups side by side.

    Args:
        rows: the scores of each group.
        contrasts: every group but the first against the first, score by score.
    """

    rows: tuple[ScoreRow, ...]
    contrasts: tuple[Contrast, ...]

    @property
    def caution(self) -> str:
        """How to read several intervals at once; empty for one."""
        several = (
            sum(
                c.difference is not None and c.difference.significant is not None
                for c in self.contrasts
            )
            > 1
        )
        note = (
            "Each interval holds for its own comparison: about one in twenty misses the truth "
            "by chance."
        )
        return note if several else ""

    @property
    def sentences(self) -> list[str]:
        """The findings, and how to read them."""
        return [*(c.sentence for c in self.contrasts), *filter(None, [self.caution])]


def compare(
    groups: Sequence[Group], targets: Sequence[float] | None = None, metric: str | None = None
) -> Comparison:
    """Score the groups and hold each against the first one.

    Where two groups ran the same seeds, the interval is that of the paired differences, which
    leaves out what the seeds have in common; otherwise it is Welch's.

    Args:
        groups: the first is the baseline.
        targets: values of the main metric to reach (see `score_table`).
        metric: the main one (see `score_table`).
    """
    if not groups:
        raise InvalidOption("there is nothing to compare", "give at least one run")
    first, *others = rows = score_table(groups, targets, metric)
    names = [name for name in first.scores if name.startswith(_OUTCOMES)]
    return Comparison(
        tuple(rows), tuple(_contrast(name, row, first) for row in others for name in names)
    )


def _contrast(name: str, row: ScoreRow, baseline: ScoreRow) -> Contrast:
    a, b = row.scores[name], baseline.scores[name]
    return Contrast(
        name, row.label, baseline.label, difference(row, baseline, name), a.unit or b.unit
    )


def difference(row: ScoreRow, baseline: ScoreRow, name: str) -> Difference | None:
    """Row minus baseline for one score: paired when the seeds match, Welch's otherwise; None where
    one lacks it.
    """
    a, b = row.scores[name], baseline.scores[name]
    if not (_usable(a) and _usable(b)):
        return None
    distinct = len(set(row.seeds)) == len(row.seeds)
    if distinct and set(row.seeds) == set(baseline.seeds) and len(row.seeds) == len(baseline.seeds):
        partner = dict(zip(baseline.seeds, b.known, strict=True))
        return paired_difference(a.known, [partner[seed] for seed in row.seeds])
    return welch_difference(a.known, b.known)


def _usable(score: Score) -> bool:
    return score.complete and bool(score.values)
