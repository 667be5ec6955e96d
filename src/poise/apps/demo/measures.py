"""Measures of runs over seeds, and whether one group of runs is better than another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from poise.analysis.reports.estimates import Difference, paired_difference
from poise.analysis.reports.numbers import number, score_text
from poise.analysis.reports.rows import Score
from poise.analysis.reports.tables import Grid, finite
from poise.results import Run

BETTER = "better"
WORSE = "worse"
UNCLEAR = "unclear"
ONE_SEED = "one seed"
NOT_REACHED = "not reached"


@dataclass(frozen=True)
class Measure:
    """One number of a run.

    Args:
        name: name in the table.
        of: the number; None if the run never reaches it.
        better: whether high or low values are good.
        unit: ``"bytes"`` or empty.
    """

    name: str
    of: Callable[[Run], float | None]
    better: Literal["high", "low"]
    unit: str = ""


@dataclass(frozen=True)
class Outcome:
    """One measure of several groups of runs, the last compared with the first.

    Args:
        measure: what was measured.
        scores: the values by group.
        difference: last group minus first, paired over seeds; None if a run has no
            value.
    """

    measure: Measure
    scores: Mapping[str, Score]
    difference: Difference | None

    @property
    def verdict(self) -> str:
        """Whether the last group is better than the first, no stronger than the evidence."""
        if self.difference is None:
            return NOT_REACHED
        if self.difference.significant is None:
            return ONE_SEED
        if not self.difference.significant:
            return UNCLEAR
        higher = self.difference.mean > 0
        if higher == (self.measure.better == "high"):
            return BETTER
        return WORSE

    @property
    def sentence(self) -> str:
        """The difference in words, with its interval."""
        d = self.difference
        name = self.measure.name
        if d is None:
            return f"{name} (not every run reaches it)"
        size = self._signed(d.mean)
        if d.low is None or d.high is None:
            return f"{name} ({size}; one seed gives no interval)"
        if d.low == d.high:
            return f"{name} ({size} with every seed)"
        interval = f"{self._signed(d.low)} to {self._signed(d.high)}"
        return f"{name} ({size}, 95 % interval {interval})"

    def _signed(self, value: float) -> str:
        text = number(abs(value), self.measure.unit, digits=2)
        if value < 0:
            return f"−{text}"
        return f"+{text}"

    def as_data(self) -> dict[str, Any]:
        """The values and the difference as plain values."""
        values = {
            group: list(map(finite, score.values))
            for group, score in self.scores.items()
        }
        return {
            "measure": self.measure.name,
            "values": values,
            "sentence": self.sentence,
            "verdict": self.verdict,
        }


def measured(
    measures: Sequence[Measure], groups: Mapping[str, Sequence[Run]]
) -> list[Outcome]:
    """Every measure of every group; all groups have the same seeds, in the same order."""
    outcomes = []
    for measure in measures:
        scores = {
            name: Score(tuple(map(measure.of, runs)), measure.unit, measure.better)
            for name, runs in groups.items()
        }
        first, *_, last = scores.values()
        difference = None
        if first.complete and last.complete:
            difference = paired_difference(last.known, first.known)
        outcomes.append(Outcome(measure, scores, difference))
    return outcomes


def outcome_grid(outcomes: Sequence[Outcome], heading: str) -> Grid:
    """A table with a row per measure; the last column has this heading and the verdicts."""
    groups = list(outcomes[0].scores)
    body = [
        (o.measure.name, *map(score_text, o.scores.values()), o.verdict)
        for o in outcomes
    ]
    return Grid(("", *groups, heading), tuple(body))


def by_verdict(outcomes: Sequence[Outcome], verdict: str) -> str:
    """The sentences of the outcomes with a verdict, joined; empty if there are none."""
    return "; ".join(o.sentence for o in outcomes if o.verdict == verdict)
