"""What can be said about the difference between groups of runs, and what cannot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from poise.core.errors import InvalidOption
from poise.reports.estimates import Difference, paired_difference, welch_difference
from poise.reports.groups import Group
from poise.reports.numbers import number
from poise.reports.rows import Score, ScoreRow, score_table

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
    def sentence(self) -> str:
        """The finding in one sentence, no stronger than the evidence."""
        d, who = self.difference, f"{self.label} against {self.baseline}"
        if d is None:
            return f"{who}: {self.score} cannot be compared, some runs do not have it."
        by = number(abs(d.mean), self.unit)
        way = "equal" if d.mean == 0 else f"{by} {'higher' if d.mean > 0 else 'lower'}"
        if d.low is None or d.high is None:
            why = "the values are not all finite" if d.n > 1 else "one seed allows no interval"
            return f"{who}: {self.score} is {way if d.mean == d.mean else 'not a number'}; {why}, so nothing is claimed."
        pairing = f"paired over {d.n} seeds" if d.method == "paired" else "Welch, seeds not paired"
        interval = f"95 % CI {number(d.low, self.unit)} to {number(d.high, self.unit)}, {pairing}"
        if not d.significant:
            return f"{who}: no significant difference in {self.score} ({interval})."
        return f"{who}: {self.score} is {way} ({interval})."


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
    def sentences(self) -> list[str]:
        """The findings, and how to read them."""
        said = [c.sentence for c in self.contrasts]
        several = sum(c.difference is not None and c.difference.significant is not None for c in self.contrasts) > 1
        note = "Each interval holds for its own comparison; with many of them, one in twenty misses by chance."
        return [*said, note] if several else said


def compare(
    groups: Sequence[Group], targets: Sequence[float] | None = None, metric: str | None = None
) -> Comparison:
    """Score the groups and hold each against the first one.

    Where two groups ran the same seeds, the interval is that of the paired differences, which leaves out what
    the seeds have in common; otherwise it is Welch's.

    Args:
        groups: the first is the baseline.
        targets: values of the main metric to reach (see `score_table`).
        metric: the main one (see `score_table`).
    """
    if not groups:
        raise InvalidOption("there is nothing to compare", "give at least one run")
    first, *others = rows = score_table(groups, targets, metric)
    names = [name for name in first.scores if name.startswith(_OUTCOMES)]
    return Comparison(tuple(rows), tuple(_contrast(name, row, first) for row in others for name in names))


def _contrast(name: str, row: ScoreRow, baseline: ScoreRow) -> Contrast:
    a, b = row.scores[name], baseline.scores[name]
    return Contrast(name, row.label, baseline.label, difference(row, baseline, name), a.unit or b.unit)


def difference(row: ScoreRow, baseline: ScoreRow, name: str) -> Difference | None:
    """Row minus baseline for one score: paired when the seeds match, Welch's otherwise; None where one lacks it."""
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
