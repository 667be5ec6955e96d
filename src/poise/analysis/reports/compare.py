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
from poise.analysis.reports.rows import Score, ScoreRow, rows_by_data, score_table
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
    def finite(self) -> bool:
        """Whether every run of both groups has a finite score."""
        return self.difference is not None and math.isfinite(self.difference.mean)

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
        if not d.significant:
            interval = f"{self._size(d.low)} to {self._size(d.high)}"
            words = f"no significant difference in {self.score}"
        else:
            # in the direction that the words name: a lower score is lower by a to b
            ends = sorted([abs(d.low), abs(d.high)])
            interval = " to ".join(map(self._number, ends))
            words = f"{self.score} is {size}"
        return f"{words} (95 % CI {interval}, {pairing})"

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
    """The scores of groups, and their differences from the first group of their data.

    Args:
        rows: the scores of each group.
        contrasts: every other group compared with the first that has the same data,
            score by score.
    """

    rows: tuple[ScoreRow, ...]
    contrasts: tuple[Contrast, ...]

    @property
    def comparable(self) -> list[Contrast]:
        """The contrasts with a finite difference; the others cannot be compared."""
        return [c for c in self.contrasts if c.finite]

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
    def other_data(self) -> str:
        """Which groups are not comparable because of their data; empty for one data."""
        members = rows_by_data(self.rows)
        if len(members) == 1:
            return ""
        parts = []
        for data, rows in members.items():
            names = ", ".join(row.label for row in rows)
            parts.append(f"{names} (on {data or 'other data'})")
        return f"Not comparable, because the data differ: {'; '.join(parts)}."

    @property
    def sentences(self) -> list[str]:
        """What cannot be compared, what differs, and the note on multiple comparisons.

        Other data come first; scores without value come after the differences.
        """
        unknown = [contrast for contrast in self.contrasts if not contrast.finite]
        sentences = [c.sentence for c in (*self.comparable, *unknown)]
        if self.other_data:
            sentences.insert(0, self.other_data)
        if self.caution:
            sentences.append(self.caution)
        return sentences


def compare(
    groups: Sequence[Group],
    targets: Sequence[float] | None = None,
    metric: str | None = None,
) -> Comparison:
    """Score the groups and compare each with the first one that has the same data.

    Groups with the same seeds get the interval of the paired differences, which removes
    the variation that the seeds have in common. Other groups get Welch's interval.

    Args:
        groups: groups of runs; the first of each data is the baseline.
        targets: target values of the main metric (see `score_table`).
        metric: the main metric (see `score_table`).
    """
    if not groups:
        raise InvalidOption("no runs to compare", "give at least one run")
    rows = score_table(groups, targets, metric)
    names = [name for name in rows[0].scores if name.startswith(_OUTCOMES)]
    contrasts = []
    for first, *others in rows_by_data(rows).values():
        contrasts += [_contrast(name, row, first) for row in others for name in names]
    return Comparison(tuple(rows), tuple(contrasts))


def pairwise(rows: Sequence[ScoreRow], score: str) -> Comparison:
    """Compare every row with every row after it, in one score.

    Args:
        rows: the scores of the groups; of each pair, the first row is the baseline.
        score: the name of the score.
    """
    contrasts = [
        _contrast(score, row, baseline)
        for same in rows_by_data(rows).values()
        for k, baseline in enumerate(same)
        for row in same[k + 1 :]
    ]
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
