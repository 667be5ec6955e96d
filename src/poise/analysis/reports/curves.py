"""Mean curves over seeds on a common axis, for the learning-curve figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from poise.analysis.reports.bins import evenly
from poise.analysis.reports.estimates import estimates
from poise.analysis.reports.groups import Group
from poise.analysis.reports.scores import measured, spread
from poise.core.types import Floats, Ints
from poise.results import Run
from poise.results.drawing import Axis, axis_values

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

    def within(self, least: float, most: float) -> Curve:
        """The same with an interval that stays inside the range of the metric.

        A mean outside that range, as of a metric of one's own, is left as it is.
        """
        return replace(
            self,
            low=np.maximum(self.low, np.minimum(least, self.mean)),
            high=np.minimum(self.high, np.maximum(most, self.mean)),
        )

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
    lines = [
        (axis_values(run, against)[rounds - 1], values)
        for run, rounds, values in _measured(group, metric)
    ]
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


def thinned(x: Floats, limit: int = POINTS) -> Floats:
    """At most ``limit`` values, evenly spaced, including the first and the last.

    >>> thinned(np.arange(5.0), 3).tolist()
    [0.0, 2.0, 4.0]
    """
    return np.asarray(x[evenly(len(x), limit)])


def _measured(group: Group, metric: str) -> list[tuple[Run, Ints, Floats]]:
    """The runs that measured a metric, when, and its values; read once per group."""
    if metric not in group.measured:
        found = []
        for run in group.runs:
            if metric in run.metrics:
                rounds, values = measured(run, metric)
                if values.ndim > 1:
                    values = spread(values)
                if len(rounds):
                    found.append((run, rounds, values))
        group.measured[metric] = found
    return group.measured[metric]


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
    found = estimates(
        np.stack([y for y, _ in lines]), np.stack([known for _, known in lines])
    )
    return Curve(x, found.mean, low=found.low, high=found.high, seeds=found.n)
