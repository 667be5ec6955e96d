"""Mean curves over seeds on a common axis, for the learning-curve figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from poise.analysis.reports.bins import evenly
from poise.analysis.reports.estimates import estimate
from poise.analysis.reports.groups import Group
from poise.analysis.reports.scores import measured, spread
from poise.core.types import Floats
from poise.ledger import Run

Axis = Literal["rounds", "time", "seconds", "bytes"]
"""The x-axis of a curve."""

POINTS = 500
"""Maximum number of points of a curve."""


@dataclass(frozen=True)
class Curve:
    """A metric of a group: mean and 95 % interval (nan for a single seed).

    Args:
        x: (K,) ascending.
        mean: (K,)
        low: (K,)
        high: (K,)
        seeds: (K,) number of runs at each point.
    """

    x: Floats
    mean: Floats
    low: Floats
    high: Floats
    seeds: Floats

    @property
    def banded(self) -> bool:
        """Whether the curve has an interval."""
        return bool(np.isfinite(self.low).any())


def curve(group: Group, metric: str, against: Axis = "rounds") -> Curve | None:
    """The mean curve of a metric over the seeds of a group; None if no run measured it.

    Against rounds, runs are averaged at the rounds that were measured. Time and bytes
    differ between seeds: there, each run contributes its latest value, over the range
    that all runs cover. A metric with one value per client becomes its standard
    deviation over clients.
    """
    lines = [_line(run, metric, against) for run in group.runs if metric in run.metrics]
    lines = [(x, y) for x, y in lines if len(x)]
    if not lines:
        return None
    x = thinned(_common(lines, against))
    if not len(x):
        return None
    values_at = _exact_values if against == "rounds" else _latest_values
    return _mean_curve(x, [values_at(x, *line) for line in lines])


def series(group: Group, values: Callable[[Run], Floats]) -> Curve | None:
    """The mean over seeds of a value per aggregation, (R,), no nan; None if empty."""
    lines = [(np.arange(1.0, run.rounds + 1), values(run)) for run in group.runs]
    lines = [(x[~np.isnan(y)], y[~np.isnan(y)]) for x, y in lines]
    lines = [(x, y) for x, y in lines if len(x)]
    if not lines:
        return None
    x = thinned(_common(lines, "rounds"))
    return _mean_curve(x, [_exact_values(x, *line) for line in lines])


def axis_values(run: Run, against: Axis) -> Floats:
    """Rounds, simulated time, seconds or bytes both ways at each aggregation, (R,)."""
    if against == "time":
        return run.times
    if against == "seconds":
        return np.cumsum(run.seconds)
    if against == "bytes":
        return np.cumsum(run.bytes_up + run.bytes_down)
    return np.arange(1.0, run.rounds + 1)


def thinned(x: Floats, limit: int = POINTS) -> Floats:
    """At most ``limit`` values, evenly spaced, including the first and the last.

    >>> thinned(np.arange(5.0), 3).tolist()
    [0.0, 2.0, 4.0]
    """
    return np.asarray(x[evenly(len(x), limit)])


def _line(run: Run, metric: str, against: Axis) -> tuple[Floats, Floats]:
    rounds, values = measured(run, metric)
    if values.ndim > 1:
        values = spread(values)
    return axis_values(run, against)[rounds - 1], values


def _common(lines: list[tuple[Floats, Floats]], against: Axis) -> Floats:
    """The x values of the mean: all measured rounds, or the range that runs share."""
    x = np.unique(np.concatenate([x for x, _ in lines]))
    if against == "rounds":
        return x
    begin, end = max(x[0] for x, _ in lines), min(x[-1] for x, _ in lines)
    return np.asarray(x[(x >= begin) & (x <= end)])


def _exact_values(at: Floats, x: Floats, y: Floats) -> tuple[Floats, np.ndarray]:
    """The values at exactly these points, and a mask of the points that have one."""
    where = np.minimum(np.searchsorted(x, at), len(x) - 1)
    return y[where], x[where] == at


def _latest_values(at: Floats, x: Floats, y: Floats) -> tuple[Floats, np.ndarray]:
    """The last value measured up to each point, and a mask of ones."""
    return y[np.searchsorted(x, at, side="right") - 1], np.ones(len(at), dtype=bool)


def _mean_curve(x: Floats, lines: list[tuple[Floats, np.ndarray]]) -> Curve:
    """Mean and interval at each x, over the runs that have a value there."""
    if len(lines) == 1:  # a shortcut for long runs: one seed has no interval
        y, known = lines[0]
        unknown = np.full(len(x), np.nan)
        mean = np.where(known, y, np.nan)
        return Curve(x, mean, low=unknown, high=unknown, seeds=known.astype(np.float64))
    estimates = []
    for k in range(len(x)):
        e = estimate([float(y[k]) for y, known in lines if known[k]])
        estimates.append((e.mean, e.low, e.high, e.n))
    mean, low, high, seeds = np.array(estimates, dtype=np.float64).T
    return Curve(x, mean, low=low, high=high, seeds=seeds)
