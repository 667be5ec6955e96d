"""The unit of a run's clock: seconds on real nodes, units of the clock in simulations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from poise.analysis.reports.groups import tables
from poise.results import Run
from poise.results.drawing import AXES


def in_seconds(run: Run) -> bool:
    """Whether the times of a run are the seconds that its nodes really took."""
    backend = tables(run).get("run", {}).get("backend")
    if isinstance(backend, Mapping):
        return backend.get("name") == "flower" and backend.get("time") != "simulated"
    return bool(backend == "flower")


def time_title(runs: Iterable[Run]) -> str:
    """The title of an axis with the times of some runs."""
    units = {in_seconds(run) for run in runs}
    if units == {True}:
        return "seconds that the server waited for its nodes"
    if units == {True, False}:
        return "time (seconds on nodes, units of the clock in simulations)"
    return AXES["time"]


def time_choice(runs: Iterable[Run]) -> str:
    """The same in a word or two, for the choice of an axis."""
    units = {in_seconds(run) for run in runs}
    if units == {True}:
        return "seconds of the clock"
    if units == {True, False}:
        return "time of the clock"
    return "simulated time"
