"""The scores of groups of runs, as rows of one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from poise.analysis.reports import scores
from poise.analysis.reports.clock_units import in_seconds, time_choice
from poise.analysis.reports.estimates import Estimate, estimate
from poise.analysis.reports.groups import Group
from poise.core.directions import PREFERRED
from poise.core.errors import InvalidOption
from poise.results import Run

TARGETS = (0.6, 0.9)
"""Default target accuracies (R_60 and R_90)."""

NOTES = {
    "half-time ": "value after half of the aggregations",
    "rounds to ": "first aggregation that reaches this value; lower is faster",
    "smoothness of ": (
        "standard deviation of the changes between measurements, divided by the absolute mean "
        "change; lower is smoother"
    ),
    "weighted client accuracy": "final accuracy per client, averaged by client importance",
    "client loss spread": (
        "standard deviation of the final loss over clients; lower is fairer"
    ),
    "clients per round": "mean number of different clients in an aggregation",
    "classes per round": "mean number of different classes that the clients of an aggregation own",
    "sent to the server": "bytes sent by all clients",
    "sent to the clients": "bytes sent by the server",
    "simulated time": "time of the last aggregation, in units of the clock",
    "seconds of the clock": (
        "seconds that the server waited for its nodes until the last aggregation"
    ),
    "time of the clock": (
        "time of the last aggregation: in seconds on nodes, in units of the clock in "
        "simulations"
    ),
}
"""Explanations of scores, by the beginning of their name."""


def score_note(name: str) -> str:
    """A one-line explanation of a score; empty for self-explaining names.

    >>> score_note("half-time accuracy"), score_note("final accuracy")
    ('value after half of the aggregations', '')
    """
    return next((note for start, note in NOTES.items() if name.startswith(start)), "")


Measure = Callable[[Run], float | None]


@dataclass(frozen=True)
class Score:
    """One score of the runs of a group.

    Args:
        values: one per run; None if the run lacks the score or never reached the
            target.
        unit: ``"bytes"``, ``"rounds"``, ``"time"``, or empty for a plain number.
        better: ``"high"``, ``"low"``, or empty if neither is better.
    """

    values: tuple[float | None, ...]
    unit: str = ""
    better: str = ""

    @property
    def known(self) -> tuple[float, ...]:
        """The values that are not None."""
        return tuple(v for v in self.values if v is not None)

    @property
    def complete(self) -> bool:
        """Whether every run has the score."""
        return len(self.known) == len(self.values)

    @property
    def estimate(self) -> Estimate | None:
        """Mean and interval over the runs; None unless every run has the score.

        A mean over only the runs that reach a target would favour groups that often
        fail.

        >>> Score((3.0, None)).estimate is None
        True
        """
        if self.values and self.complete:
            return estimate(self.known)
        return None


@dataclass(frozen=True)
class ScoreRow:
    """The scores of one group, by name.

    Args:
        label: label of the group.
        seeds: seeds of its runs.
        rounds: aggregations of the longest run.
        scores: scores by name, in table order; all rows have the same names.
        data: the data of the group; scores on other data are not comparable.
        description: how the group differs, if the label does not say it.
    """

    label: str
    seeds: tuple[str, ...]
    rounds: int
    scores: Mapping[str, Score]
    data: str = ""
    description: str = ""


def score_table(
    groups: Sequence[Group],
    targets: Sequence[float] | None = None,
    metric: str | None = None,
) -> list[ScoreRow]:
    """The scores of each group, without scores that no group has.

    Args:
        groups: groups of runs.
        targets: target values of the main metric; default: 0.6 and 0.9 for accuracy,
            otherwise none.
        metric: the main metric, used for half-time, targets and smoothness; default:
            accuracy if measured.
    """
    main = metric or main_metric(groups)
    if targets is None and main == "accuracy":
        targets = TARGETS
    columns = _columns(groups, main, targets or ())
    scores_by_group: list[dict[str, Score]] = []
    for group in groups:
        scores_by_group.append({name: _score(c, group) for name, c in columns.items()})
    shown = []
    for name, column in columns.items():
        if column.always or any(by_name[name].known for by_name in scores_by_group):
            shown.append(name)
    rows = []
    for group, by_name in zip(groups, scores_by_group, strict=True):
        chosen = {name: by_name[name] for name in shown}
        row = ScoreRow(
            group.label,
            group.seeds,
            rounds=group.rounds,
            scores=chosen,
            data=group.data,
            description=group.description,
        )
        rows.append(row)
    return rows


def rows_by_data(rows: Sequence[ScoreRow]) -> dict[str, list[ScoreRow]]:
    """The rows whose scores are comparable, by their data."""
    found: dict[str, list[ScoreRow]] = {}
    for row in rows:
        found.setdefault(row.data, []).append(row)
    return found


def _score(column: _Column, group: Group) -> Score:
    values = tuple(_value(column.measure, run) for run in group.runs)
    return Score(values, unit=column.unit, better=column.better)


def main_metric(groups: Sequence[Group]) -> str | None:
    """The first of accuracy, loss and other scalar metrics; None if not measured."""
    names = scalar_metrics(groups)
    return next((name for name in (*PREFERRED, *names) if name in names), None)


def scalar_metrics(groups: Sequence[Group]) -> list[str]:
    """Metrics with one value per aggregation, accuracy first."""
    return [name for name in all_metrics(groups) if not per_client(groups, name)]


def all_metrics(groups: Sequence[Group]) -> list[str]:
    """Every metric of every group, accuracy first."""
    return list(dict.fromkeys(name for group in groups for name in group.metrics))


def per_client(groups: Sequence[Group], metric: str) -> bool:
    """Whether a metric has one value per client."""
    having = (run for group in groups for run in group.runs if metric in run.metrics)
    return any(run.is_per_client(metric) for run in having)


@dataclass(frozen=True)
class _Column:
    measure: Measure
    unit: str = ""
    better: str = ""
    always: bool = False  # shown even if no run has the score


def _columns(
    groups: Sequence[Group], main: str | None, targets: Sequence[float]
) -> dict[str, _Column]:
    """The columns of a score table, by name and in order."""
    columns: dict[str, _Column] = {}
    for name in scalar_metrics(groups):
        columns[f"final {name}"] = _Column(
            partial(scores.final, metric=name), "", _better(groups, name)
        )
    if main is not None:
        better = _better(groups, main)
        columns[f"half-time {main}"] = _Column(
            partial(scores.half_time, metric=main), "", better
        )
        for target in targets:
            reach = partial(scores.rounds_to, target=target, metric=main)
            columns[f"rounds to {main} {target:g}"] = _Column(
                reach, "rounds", "low", always=True
            )
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
        **_time_column(groups),
    }


def _time_column(groups: Sequence[Group]) -> dict[str, _Column]:
    """The time of the last aggregation: seconds where all runs are on real nodes."""
    runs = [run for group in groups for run in group.runs]
    name = time_choice(runs)
    unit = "time"
    if all(map(in_seconds, runs)):
        unit = "seconds"
    return {name: _Column(scores.simulated_time, unit, "low")}


def _better(groups: Sequence[Group], metric: str) -> str:
    for run in (run for group in groups for run in group.runs):
        if metric in run.metrics and run.directions.lower_is_better(metric):
            return "low"
    return "high"


def _value(measure: Measure, run: Run) -> float | None:
    """A score of a run; None if the run lacks the metric."""
    try:
        value = measure(run)
    except InvalidOption:
        return None
    if value is None:
        return None
    return float(value)


def _mean(per_round: np.ndarray | None) -> float | None:
    if per_round is None or not len(per_round):
        return None
    return float(per_round.mean())
