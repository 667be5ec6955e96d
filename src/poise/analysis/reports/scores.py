"""Scores of one run: quality and cost, computed from its ledger."""

from __future__ import annotations

import json
import math
from html import escape

import numpy as np

from poise.analysis.reports.groups import tables
from poise.core.errors import InvalidOption
from poise.core.types import Floats, Ints
from poise.results import Run


def measured(run: Run, metric: str) -> tuple[Ints, Floats]:
    """The aggregations (counted from 1) that measured a metric, and its values.

    Rounds between two evaluations are left out. NaN at an evaluation is kept: it shows
    that the run diverged.

    Returns:
        rounds (K,) and values (K,) or (K, N).
    """
    values = run.metric(metric)
    rounds = np.arange(1, len(values) + 1)
    plan = tables(run).get("run", {})
    every = plan.get("evaluate_every")
    end = plan.get("rounds")
    evaluated = ~np.isnan(values).reshape(len(values), -1).all(axis=1)
    if every is not None:
        evaluated |= (rounds % every == 0) | (rounds == end)
    if run.ending:
        evaluated |= rounds == run.rounds
    return rounds[evaluated], values[evaluated]


def final(run: Run, metric: str) -> float:
    """The last measured value of a scalar metric; nan if there is none."""
    _, values = _scalar(run, metric)
    if len(values):
        return float(values[-1])
    return math.nan


def half_time(run: Run, metric: str) -> float:
    """The latest value of a scalar metric up to aggregation max(⌊R/2⌋, 1)."""
    rounds, values = _scalar(run, metric)
    early = values[rounds <= max(run.rounds // 2, 1)]
    if len(early):
        return float(early[-1])
    return math.nan


def rounds_to(run: Run, target: float, metric: str = "accuracy") -> int | None:
    """The first aggregation at which a metric reaches the target; None if never.

    A loss reaches the target from above, an accuracy from below.
    """
    rounds, values = _scalar(run, metric)
    if run.directions.lower_is_better(metric):
        reached = rounds[values <= target]
    else:
        reached = rounds[values >= target]
    if len(reached):
        return int(reached[0])
    return None


def smoothness(run: Run, metric: str = "accuracy") -> float:
    """std(δ)/|mean(δ)| of the changes δ between measurements; lower is smoother.

    A flat line gives nan.
    """
    _scalar(run, metric)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = run.smoothness(metric)
    if math.isfinite(value):
        return value
    return math.nan


def loss_spread(run: Run, metric: str = "client_loss") -> float:
    """Standard deviation over clients of their last measured loss; lower is fairer."""
    _, values = measured(run, metric)
    if len(values):
        return float(spread(values[-1:])[0])
    return math.nan


def spread(values: Floats) -> Floats:
    """Standard deviation over clients, row by row; NaN values are left out.

    >>> spread(np.array([[1.0, 3.0, np.nan]])).tolist()
    [1.0]
    """
    known = ~np.isnan(values)
    count = known.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(known, values, 0.0).sum(axis=1) / count
        squares = np.where(known, (values - mean[:, None]) ** 2, 0.0)
        return np.asarray(np.sqrt(squares.sum(axis=1) / count))


def weighted_accuracy(run: Run, metric: str = "client_accuracy") -> float:
    """Σ p_i · accuracy_i over clients at the last measurement; p_i is the importance.

    Clients without a value are left out; the importance of the others is scaled to sum
    to 1.
    """
    _, values = measured(run, metric)
    importance = run.array("importance")
    if not len(values) or importance is None:
        return math.nan
    known = ~np.isnan(values[-1])
    total = importance[known].sum()
    if total > 0:
        return float(importance[known] @ values[-1][known] / total)
    return math.nan


def participations(run: Run) -> tuple[Ints, Ints]:
    """The distinct (round, client) pairs of a run, sorted; rounds count from 0."""
    return run.participants[:, 0], run.participants[:, 1]


def distinct_clients(run: Run) -> Ints:
    """Number of different clients in each aggregation, (R,)."""
    rounds, _ = participations(run)
    return np.bincount(rounds, minlength=run.rounds)


def class_names(run: Run, classes: int) -> list[str]:
    """Names of the classes as HTML text for figures; ``class 0`` … without names."""
    names = json.loads(run.meta.get("class names", "[]"))
    if len(names) != classes:
        return [f"class {k}" for k in range(classes)]
    # a percent sign begins a placeholder in plotly's templates
    return [escape(str(name)).replace("%", "&#37;") for name in names]


def distinct_classes(run: Run) -> Ints | None:
    """Number of different classes that the clients of each aggregation own, (R,).

    None for data without classes.
    """
    counts = run.array("label_counts")
    if counts is None:
        return None
    rounds, clients = participations(run)
    present = np.zeros((run.rounds, counts.shape[1]), dtype=bool)
    for k, owns in enumerate((counts > 0).T):
        present[rounds[owns[clients]], k] = True
    return np.asarray(present.sum(axis=1))


def simulated_time(run: Run) -> float:
    """Simulated time of the last aggregation; nan before the first."""
    if run.rounds:
        return float(run.times[-1])
    return math.nan


def bytes_up(run: Run) -> float:
    """Total bytes sent by the clients."""
    return float(run.bytes_up.sum())


def bytes_down(run: Run) -> float:
    """Total bytes sent by the server."""
    return float(run.bytes_down.sum())


def _scalar(run: Run, metric: str) -> tuple[Ints, Floats]:
    rounds, values = measured(run, metric)
    if values.ndim > 1:
        raise InvalidOption(
            f"{metric} has one value per client",
            f"measure {metric.replace('client_', 'train_')}",
        )
    return rounds, values
