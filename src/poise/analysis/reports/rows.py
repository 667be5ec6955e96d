"""The scores of groups of runs, as rows of one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from poise.analysis.reports import scores
from poise.analysis.reports.estimates import Estimate, estimate
from poise.analysis.reports.groups import Group
from poise.core.errors import InvalidOption
from poise.ledger import Run

TARGETS = (0.6, 0.9)
"""Accuracies to reach where none are asked for (R_60 and R_90)."""

PREFERRED = ("accuracy", "loss", "train_accuracy", "train_loss")
"""The metrics that come first, where they were measured."""

Measure = Callable[[Run], float | None]


@dataclass(frozen=True)
class Score:
    """One score of the runs of a group.

    Args:
        values: one per run; None where the run has no such score, or never reached a target.
        unit: ``"bytes"``, ``"rounds"``, ``"time"``, or empty for a plain number.
        better: ``"high"``, ``"low"``, or empty where neither is.
    """

    values: tuple[float | None, ...]
    unit: str = ""
    better: str = ""

    @property
    def known(self) -> tuple[float, ...]:
        """The values that there are."""
        return tuple(v for v in self.values if v is not None)

    @property
    def complete(self) -> bool:
        """Whether every run has the score."""
        return len(self.known) == len(self.values)

    @property
    def estimate(self) -> Estimate | None:
        """Mean and interval over the runs; None unless every run has the score.

        The mean over the seeds that happened to reach a target would flatter a group that often
        fails to.

        >>> Score((3.0, None)).estimate is None
        True
        """
        return estimate(self.known) if self.values and self.complete else None


@dataclass(frozen=True)
class ScoreRow:
    """The scores of one group, by name.

    Args:
        label: of the group.
        seeds: of its runs.
        rounds: aggregations of the longest run.
        scores: by name, in the order of the table; the same names in every row.
    """

    label: str
    seeds: tuple[str, ...]
    rounds: int
    scores: Mapping[str, Score]


def score_table(
    groups: Sequence[Group], targets: Sequence[float] | None = None, metric: str | None = None
) -> list[ScoreRow]:
    """The scores of each group; a score that no group has is left out.

    Args:
        groups: of runs.
        targets: values of the main metric to reach; 0.6 and 0.9 for accuracy, none for other
            metrics.
        metric: the main one, of which half-time, targets and smoothness are given; accuracy where
            it is there.
    """
    main = metric or main_metric(groups)
    if targets is None:
        targets = TARGETS if main == "accuracy" else ()
    columns = _columns(groups, main, targets)
    table = {
        name: [
            Score(tuple(_value(c.measure, run) for run in group.runs), c.unit, c.better)
            for group in groups
        ]
        for name, c in columns.items()
    }
    kept = [
        name
        for name, found in table.items()
        if columns[name].always or any(score.known for score in found)
    ]
    return [
        ScoreRow(group.label, group.seeds, group.rounds, {name: table[name][k] for name in kept})
        for k, group in enumerate(groups)
    ]


def main_metric(groups: Sequence[Group]) -> str | None:
    """The metric that comes first: accuracy, else a loss, else any scalar one; None where nothing
    was measured.
    """
    names = scalar_metrics(groups)
    return next((name for name in (*PREFERRED, *names) if name in names), None)


def scalar_metrics(groups: Sequence[Group]) -> list[str]:
    """Metrics with one value per aggregation, accuracy first."""
    return [name for name in all_metrics(groups) if not per_client(groups, name)]


def all_metrics(groups: Sequence[Group]) -> list[str]:
    """Every metric that a group knows, accuracy first."""
    return list(dict.fromkeys(name for group in groups for name in group.metrics))


def per_client(groups: Sequence[Group], metric: str) -> bool:
    """Whether a metric has one value per client."""
    having = (run for group in groups for run in group.runs if metric in run.metrics)
    return next(having).metric(metric).ndim > 1


@dataclass(frozen=True)
class _Column:
    measure: Measure
    unit: str = ""
    better: str = ""
    always: bool = False  # shown even where no run has it


def _columns(
    groups: Sequence[Group], main: str | None, targets: Sequence[float]
) -> dict[str, _Column]:
    """The scores of a table, by name and in order."""
    columns: dict[str, _Column] = {}
    for name in scalar_metrics(groups):
        columns[f"final {name}"] = _Column(partial(scores.final, metric=name), "", _better(name))
    if main is not None:
        better = _better(main)
        columns[f"half-time {main}"] = _Column(partial(scores.half_time, metric=main), "", better)
        for target in targets:
            reach = partial(scores.rounds_to, target=target, metric=main)
            columns[f"rounds to {main} {target:g}"] = _Column(reach, "rounds", "low", always=True)
        columns[f"smoothness of {main}"] = _Column(
            partial(scores.smoothness, metric=main), "", "low"
        )
    return columns | {
        "weighted client accuracy": _Column(scores.weighted_accuracy, "", "high"),
        "client loss spread": _Column(scores.loss_spread, "", "low"),
        "clients per round": _Column(lambda run: _mean(scores.distinct_clients(run))),
        "classes per round": _Column(lambda run: _mean(scores.distinct_classes(run))),
        "sent to the server": _Column(scores.bytes_up, "bytes", "low"),
        "sent to the clients": _Column(scores.bytes_down, "bytes", "low"),
        "simulated time": _Column(scores.simulated_time, "time", "low"),
    }


def _better(metric: str) -> str:
    return "low" if scores.lower_is_better(metric) else "high"


def _value(measure: Measure, run: Run) -> float | None:
    """A score of a run; None where the run did not measure what it needs."""
    try:
        value = measure(run)
    except InvalidOption:
        return None
    return None if value is None else float(value)


def _mean(per_round: np.ndarray | None) -> float | None:
    return None if per_round is None or not len(per_round) else float(per_round.mean())
