"""Mean curves over seeds on a common axis: what the learning-curve figures draw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from poise.analysis.reports.estimates import estimate
from poise.analysis.reports.groups import Group
from poise.analysis.reports.scores import measured, spread
from poise.core.types import Floats
from poise.ledger import Run

Axis = Literal["rounds", "time", "seconds", "bytes"]
"""What a curve is drawn against."""

POINTS = 500
"""A curve is thinned to this many points."""


@dataclass(frozen=True)
class Curve:
    """A metric of a group: mean and 95 % interval (nan where a single seed allows none).

    Args:
        x: (K,) ascending.
        mean: (K,)
        low: (K,)
        high: (K,)
        seeds: (K,) number of runs behind each point.
    """

    x: Floats
    mean: Floats
    low: Floats
    high: Floats
    seeds: Floats

    @property
    def banded(self) -> bool:
        """Whether there is an interval to draw."""
        return bool(np.isfinite(self.low).any())


def curve(group: Group, metric: str, against: Axis = "rounds") -> Curve | None:
    """The mean curve of a metric over the seeds of a group; None where no run measured it.

    Against rounds, runs are averaged where they were measured. Against time and bytes, which differ
    from seed to seed, each run counts with the newest model that it had at that point, over the
    stretch that all runs cover. A metric with one value per client is drawn as its standard
    deviation over clients.
    """
    lines = [_line(run, metric, against) for run in group.runs if metric in run.metrics]
    lines = [(x, y) for x, y in lines if len(x)]
    if not lines:
        return None
    x = thinned(_common(lines, against))
    place = _exactly if against == "rounds" else _newest
    return _summary(x, [place(x, *line) for line in lines]) if len(x) else None


def series(group: Group, values: Callable[[Run], Floats]) -> Curve | None:
    """The mean over seeds of a number that every aggregation has, (R,); nan is left out. None where
    there is none.
    """
    lines = [(np.arange(1.0, run.rounds + 1), values(run)) for run in group.runs]
    lines = [(x[~np.isnan(y)], y[~np.isnan(y)]) for x, y in lines]
    lines = [(x, y) for x, y in lines if len(x)]
    if not lines:
        return None
    x = thinned(_common(lines, "rounds"))
    return _summary(x, [_exactly(x, *line) for line in lines])


def axis_values(run: Run, against: Axis) -> Floats:
    """Rounds, simulated time, seconds or bytes (both ways) spent up to and including each
    aggregation, (R,).
    """
    if against == "time":
        return run.times
    if against == "seconds":
        return np.cumsum(run.seconds)
    if against == "bytes":
        return np.cumsum(run.bytes_up + run.bytes_down)
    return np.arange(1.0, run.rounds + 1)


def thinned(x: Floats, limit: int = POINTS) -> Floats:
    """At most ``limit`` values, evenly spaced in the sequence, the first and the last among them.

    >>> thinned(np.arange(5.0), 3).tolist()
    [0.0, 2.0, 4.0]
    """
    return x if len(x) <= limit else x[np.linspace(0, len(x) - 1, limit).round().astype(int)]


def _line(run: Run, metric: str, against: Axis) -> tuple[Floats, Floats]:
    rounds, values = measured(run, metric)
    return axis_values(run, against)[rounds - 1], spread(values) if values.ndim > 1 else values


def _common(lines: list[tuple[Floats, Floats]], against: Axis) -> Floats:
    """Where the mean is taken: every x at which a run was measured, or those that all runs
    cover.
    """
    x = np.unique(np.concatenate([x for x, _ in lines]))
    if against == "rounds":
        return x
    begin, end = max(x[0] for x, _ in lines), min(x[-1] for x, _ in lines)
    return np.asarray(x[(x >= begin) & (x <= end)])


def _exactly(at: Floats, x: Floats, y: Floats) -> tuple[Floats, np.ndarray]:
    """The values measured at these very points, and where there are any."""
    where = np.minimum(np.searchsorted(x, at), len(x) - 1)
    return y[where], x[where] == at


def _newest(at: Floats, x: Floats, y: Floats) -> tuple[Floats, np.ndarray]:
    """The last value measured up to each point."""
    return y[np.searchsorted(x, at, side="right") - 1], np.ones(len(at), dtype=bool)


def _summary(x: Floats, lines: list[tuple[Floats, np.ndarray]]) -> Curve:
    """Mean and interval at each x, over the runs that have a value there."""
    if len(lines) == 1:  # one seed has no interval, and long runs have many points
        y, there = lines[0]
        unknown = np.full(len(x), np.nan)
        return Curve(x, np.where(there, y, np.nan), unknown, unknown, there.astype(np.float64))
    found = [estimate([float(y[k]) for y, there in lines if there[k]]) for k in range(len(x))]
    mean, low, high, seeds = np.array(
        [(e.mean, e.low, e.high, e.n) for e in found], dtype=np.float64
    ).T
    return Curve(x, mean, low, high, seeds)
