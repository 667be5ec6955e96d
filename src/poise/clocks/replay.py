"""`Replay`: a clock that follows a saved schedule; functions to save and load one."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np

from poise.core.errors import DataError, IncompatibleParts
from poise.core.parts import part
from poise.core.traits import ClockTraits
from poise.core.types import Assignment, Floats, InFlight, Ints, Setting, Step

HEADER = ["index", "time", "client", "version"]


def save_schedule(steps: Iterable[Step], path: str | Path) -> None:
    """Write a schedule as CSV, one line per arrival.

    A step without arrivals has one line with empty client and version.
    """
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(HEADER)
        for step in steps:
            time = repr(float(step.time))
            for arrival in step.assignments:
                out.writerow([step.index, time, arrival.client, arrival.version])
            if not step.assignments:
                out.writerow([step.index, time, "", ""])


def load_schedule(path: str | Path) -> list[Step]:
    """Read a schedule that `save_schedule` wrote."""
    try:
        with Path(path).open(newline="", encoding="utf-8") as file:
            lines = list(csv.reader(file))
    except OSError as error:
        raise DataError(
            f"{path}: {error.strerror}", "write a schedule with save_schedule"
        ) from error
    if not lines or lines[0] != HEADER:
        raise DataError(
            f"{path}: this file is not a schedule",
            f"its first line must be {','.join(HEADER)}",
        )
    times: dict[int, float] = {}
    arrivals: dict[int, list[Assignment]] = {}
    for number, line in enumerate(lines[1:], start=2):
        try:
            index = int(line[0])
            time = float(line[1])
            assignments = []
            if line[2]:
                assignments.append(Assignment(time, int(line[2]), version=int(line[3])))
        except (ValueError, IndexError) as error:
            raise DataError(f"{path}: line {number}: {error}") from error
        if any(a.version > index or a.version < 0 or a.client < 0 for a in assignments):
            raise DataError(
                f"{path}: line {number}: client {line[2]} cannot have worked on version {line[3]} "
                f"for step {index}",
                f"clients count from 0, and versions lie between 0 and {index}",
            )
        times.setdefault(index, time)
        arrivals.setdefault(index, []).extend(assignments)
    if sorted(times) != list(range(len(times))):
        raise DataError(
            f"{path}: steps are missing", "number the steps 0, 1, 2, … without gaps"
        )
    return [Step(n, times[n], tuple(arrivals[n])) for n in range(len(times))]


@lru_cache(maxsize=4)
def _cached_schedule(path: str, changed: int) -> tuple[Step, ...]:
    """Return the schedule in a file, read again only when the file changes."""
    return tuple(load_schedule(path))


@dataclass(frozen=True)
class ScheduledTimes:
    """Work times of a schedule; work that it lacks ends after its last step."""

    arrivals: Mapping[tuple[int, int], float]  # by client and version
    last: float

    def of(self, clients: Ints, version: int, seed: int, now: float) -> Floats:
        """Return the time until each of these clients arrives with this version."""
        never = self.last + 1.0
        waits = [self.arrivals.get((int(c), version), never) - now for c in clients]
        return np.array(waits, dtype=np.float64)


@part("clock", "replay")
class Replay:
    """Repeat a saved schedule: the same clients, arrival times and versions.

    Use the sampler and the federation of the run that the schedule came from. The run
    ends with the last step of the schedule.

    Args:
        schedule: path of a file that `save_schedule` wrote.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from poise.clocks import Synchronous
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "schedule.csv")
    ...     save_schedule(Synchronous().timeline([1.0, 2.0], aggregations=2), path)
    ...     [(step.time, step.clients.tolist()) for step in Replay(str(path)).timeline()]
    [(2.0, [0, 1]), (4.0, [0, 1])]
    """

    schedule: str

    waits = False
    durations = None
    traits = ClockTraits()

    def fit(self, setting: Setting) -> None:
        """Refuse files that cannot be read, and schedules of a larger federation."""
        last = max(
            (int(s.clients.max()) for s in self._steps() if s.assignments), default=0
        )
        if last >= setting.clients:
            raise IncompatibleParts(
                (
                    f"Replay: {self.schedule} has client {last}, but the federation has "
                    f"{setting.clients} clients"
                ),
                "clients count from 0: use the federation that the schedule came from",
                where=("schedule",),
            )

    def for_clients(self, stay: Sequence[int]) -> Self:
        """Refuse: a schedule holds for all of its clients only."""
        raise IncompatibleParts(
            f"Replay: {self.schedule} was saved with all clients, but only {len(stay)} are left",
            "use the clock that the schedule came from",
        )

    def times(self, clients: int) -> ScheduledTimes:
        """Return the work times of the schedule."""
        arrivals: dict[tuple[int, int], float] = {}
        last = 0.0
        for step in self._steps():
            last = step.time
            for assignment in step.assignments:
                arrivals[assignment.client, assignment.version] = step.time
        return ScheduledTimes(arrivals, last)

    def advance(
        self, in_flight: InFlight, started: Sequence[Assignment], index: int
    ) -> tuple[Step, InFlight]:
        """Return the next step of the schedule, with the work in flight it names."""
        steps = self._steps()
        if index >= len(steps):
            return Step(index, np.inf, ()), in_flight
        at_work = {(a.client, a.version): a for a in (*in_flight.assignments, *started)}
        step = steps[index]
        arrivals = [(a.client, a.version) for a in step.assignments]
        for client, version in arrivals:
            if (client, version) not in at_work:
                raise IncompatibleParts(
                    (
                        f"Replay: step {index} of {self.schedule}: client {client} is not at work "
                        f"on version {version}"
                    ),
                    "use the sampler and the federation of the run that the schedule came from",
                )
        arrived = tuple(at_work.pop(arrival) for arrival in arrivals)
        return Step(index, step.time, arrived), InFlight(
            step.time, tuple(at_work.values())
        )

    def timeline(self, *given: Any, **options: Any) -> Iterator[Step]:
        """Yield the steps of the schedule; all arguments are ignored."""
        return iter(self._steps())

    def identical_weights(self, base: Floats, clients: int) -> Floats:
        """Return the base weights."""
        return np.asarray(base, dtype=np.float64)

    def _steps(self) -> tuple[Step, ...]:
        path = Path(self.schedule)
        changed = path.stat().st_mtime_ns if path.exists() else 0
        return _cached_schedule(self.schedule, changed)
