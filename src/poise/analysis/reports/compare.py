"""Comparison of groups of runs: differences with confidence intervals, in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from poise.analysis.reports.estimates import (
    Difference,
    paired_difference,
    welch_difference,
)
from poise.analysis.reports.groups import Group
from poise.analysis.reports.numbers import number
from poise.analysis.reports.rows import Score, ScoreRow, score_table
from poise.core.errors import InvalidOption

_OUTCOMES = (
    "final ",
    "half-time ",
    "rounds to ",
    "weighted client accuracy",
    "client loss spread",
)


@dataclass(frozen=True)
class Contrast:
    """One score of a group compared with the baseline.

    Args:
        score: name of the score in the table.
        label: label of the group.
        baseline: label of the baseline group.
        difference: group minus baseline; None if a run lacks the score.
        unit: unit of the score.
    """

    score: str
    label: str
    baseline: str
    difference: Difference | None
    unit: str = ""

    @property
    def sides(self) -> str:
        """The two groups, as ``group vs baseline``."""
        return f"{self.label} vs {self.baseline}"

    @property
    def finding(self) -> str:
        """The difference in words, no stronger than the evidence."""
        d = self.difference
        if d is None:
            return f"{self.score} cannot be compared: some runs have no value"
        if not math.isfinite(d.mean):
            return f"{self.score} cannot be compared: it is not finite in every run"
        size = self._size(d.mean)
        if d.low is None or d.high is None:
            return f"{self.score} is {size}; one seed gives no interval, so this proves nothing"
        if d.method == "paired":
            pairing = f"paired over {d.n} seeds"
        else:
            pairing = "Welch, seeds not paired"
        interval = (
            f"(95 % CI {self._number(d.low)} to {self._number(d.high)}, {pairing})"
        )
        if not d.significant:
            return f"no significant difference in {self.score} {interval}"
        return f"{self.score} is {size} {interval}"

    @property
    def sentence(self) -> str:
        """The finding, with the names of both groups."""
        return f"{self.sides}: {self.finding}."

    def _size(self, mean: float) -> str:
        if mean == 0:
            return "equal"
        if mean > 0:
            return f"{self._number(mean)} higher"
        return f"{self._number(-mean)} lower"

    def _number(self, value: float) -> str:
        return number(value, self.unit, digits=3)


@dataclass(frozen=True)
class Comparison:
    """The scores of groups, and their differences from the first group.

    Args:
        rows: the scores of each group.
        contrasts: every other group compared with the first, score by score.
    """

    rows: tuple[ScoreRow, ...]
    contrasts: tuple[Contrast, ...]

    @property
    def caution(self) -> str:
        """A note on multiple comparisons; empty unless there are several intervals."""
        differences = [c.difference for c in self.contrasts if c.difference is not None]
        intervals = sum(
            difference.significant is not None for difference in differences
        )
        if intervals <= 1:
            return ""
        return (
            "Each interval covers one comparison: about one in twenty misses the true value by "
            "chance."
        )

    @property
    def sentences(self) -> list[str]:
        """All findings, then the note on multiple comparisons."""
        sentences = [contrast.sentence for contrast in self.contrasts]
        if self.caution:
            sentences.append(self.caution)
        return sentences


def compare(
    groups: Sequence[Group],
    targets: Sequence[float] | None = None,
    metric: str | None = None,
) -> Comparison:
    """Score the groups and compare each with the first one.

    Groups with the same seeds get the interval of the paired differences, which removes
    the variation that the seeds have in common. Other groups get Welch's interval.

    Args:
        groups: groups of runs; the first is the baseline.
        targets: target values of the main metric (see `score_table`).
        metric: the main metric (see `score_table`).
    """
    if not groups:
        raise InvalidOption("no runs to compare", "give at least one run")
    first, *others = rows = score_table(groups, targets, metric)
    names = [name for name in first.scores if name.startswith(_OUTCOMES)]
    contrasts = [_contrast(name, row, first) for row in others for name in names]
    return Comparison(tuple(rows), tuple(contrasts))


def _contrast(name: str, row: ScoreRow, baseline: ScoreRow) -> Contrast:
    return Contrast(
        score=name,
        label=row.label,
        baseline=baseline.label,
        difference=difference(row, baseline, name),
        unit=row.scores[name].unit or baseline.scores[name].unit,
    )


def difference(row: ScoreRow, baseline: ScoreRow, name: str) -> Difference | None:
    """Row minus baseline for one score; None if a run lacks it.

    The interval is paired if the seeds match, Welch's otherwise.
    """
    a = row.scores[name]
    b = baseline.scores[name]
    if not (_usable(a) and _usable(b)):
        return None
    distinct = len(set(row.seeds)) == len(row.seeds)
    if (
        distinct
        and set(row.seeds) == set(baseline.seeds)
        and len(row.seeds) == len(baseline.seeds)
    ):
        partner = dict(zip(baseline.seeds, b.known, strict=True))
        return paired_difference(a.known, [partner[seed] for seed in row.seeds])
    return welch_difference(a.known, b.known)


def _usable(score: Score) -> bool:
    return score.complete and bool(score.values)
