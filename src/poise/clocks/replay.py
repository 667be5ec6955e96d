"""A schedule that was saved, played again."""

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
    """Write a schedule as CSV: one line per arrival, and one without a client for a step without
    arrivals.
    """
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(HEADER)
        for step in steps:
            arrivals: list[tuple[Any, Any]] = [(f.client, f.version) for f in step.assignments] or [
                ("", "")
            ]
            out.writerows([step.index, repr(float(step.time)), *who] for who in arrivals)


def load_schedule(path: str | Path) -> list[Step]:
    """Read a schedule back; versions and clients are those that were saved."""
    try:
        with Path(path).open(newline="", encoding="utf-8") as file:
            lines = list(csv.reader(file))
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}", "make one with save_schedule") from error
    if not lines or lines[0] != HEADER:
        raise DataError(
            f"{path}: this is no schedule", f"its first line must be {','.join(HEADER)}"
        )
    steps: dict[int, tuple[float, list[Assignment]]] = {}
    for number, line in enumerate(lines[1:], start=2):
        try:
            index, time = int(line[0]), float(line[1])
            who = [Assignment(time, int(line[2]), int(line[3]))] if line[2] else []
        except (ValueError, IndexError) as error:
            raise DataError(f"{path}: line {number}: {error}") from error
        if any(f.version > index or f.version < 0 or f.client < 0 for f in who):
            raise DataError(
                f"{path}: line {number}: nobody can work on version {line[3]} for step {index}"
            )
        steps.setdefault(index, (time, []))[1].extend(who)
    if sorted(steps) != list(range(len(steps))):
        raise DataError(f"{path}: steps are missing", "they count from 0")
    return [Step(n, steps[n][0], tuple(steps[n][1])) for n in range(len(steps))]


@lru_cache(maxsize=4)
def _loaded(path: str, changed: int) -> tuple[Step, ...]:
    """The schedule in a file, read once for as long as the file stays the same."""
    return tuple(load_schedule(path))


@dataclass(frozen=True)
class ScheduledTimes:
    """Work ends when the schedule says so; work that is not in it goes on beyond its end."""

    arrivals: Mapping[tuple[int, int], float]  # by client and version
    last: float

    def of(self, clients: Ints, version: int, seed: int, now: float) -> Floats:
        """The time until each of these clients arrives with this version."""
        found = [self.arrivals.get((int(c), version), self.last + 1.0) - now for c in clients]
        return np.array(found, dtype=np.float64)


@part("clock", "replay")
class Replay:
    """Play a saved schedule again: the same clients arrive at the same times, from the same
    versions.

    With the sampler of the run that it came from. The run ends where the schedule ends.

    Args:
        schedule: a file that `save_schedule` wrote.
    """

    schedule: str

    waits = False
    durations = None
    traits = ClockTraits()

    def fit(self, setting: Setting) -> None:
        """The schedule must be readable and of these clients."""
        last = max((int(s.clients.max()) for s in self._steps() if s.assignments), default=0)
        if last >= setting.clients:
            raise IncompatibleParts(
                (
                    f"Replay: {self.schedule} has client {last}, the federation {setting.clients} "
                    "clients"
                ),
                "clients count from 0",
                where=("schedule",),
            )

    def for_clients(self, stay: Sequence[int]) -> Self:
        """Refused: other clients have another schedule."""
        raise IncompatibleParts(
            f"Replay: {self.schedule} was saved with all clients, and {len(stay)} of them are left",
            "use the clock that the schedule came from",
        )

    def times(self, clients: int) -> ScheduledTimes:
        """How long work takes, according to the schedule."""
        steps = self._steps()
        arrivals = {(f.client, f.version): s.time for s in steps for f in s.assignments}
        return ScheduledTimes(arrivals, steps[-1].time if steps else 0.0)

    def advance(
        self, in_flight: InFlight, started: Sequence[Assignment], index: int
    ) -> tuple[Step, InFlight]:
        """The next step of the schedule, with the work that is under way."""
        steps = self._steps()
        if index >= len(steps):
            return Step(index, np.inf, ()), in_flight
        assignments = {(f.client, f.version): f for f in (*in_flight.assignments, *started)}
        step = steps[index]
        wanted = [(f.client, f.version) for f in step.assignments]
        for client, version in wanted:
            if (client, version) not in assignments:
                raise IncompatibleParts(
                    (
                        f"Replay: step {index} of {self.schedule}: client {client} is not at work on "
                        f"version {version}"
                    ),
                    "use the sampler and the federation of the run that the schedule came from",
                )
        arrived = tuple(assignments.pop(w) for w in wanted)
        return Step(index, step.time, arrived), InFlight(step.time, tuple(assignments.values()))

    def timeline(self, *given: Any, **options: Any) -> Iterator[Step]:
        """The schedule itself, whatever durations are given."""
        return iter(self._steps())

    def identical_weights(self, base: Floats, clients: int) -> Floats:
        """The base weights."""
        return np.asarray(base, dtype=np.float64)

    def _steps(self) -> tuple[Step, ...]:
        path = Path(self.schedule)
        return _loaded(self.schedule, path.stat().st_mtime_ns if path.exists() else 0)
