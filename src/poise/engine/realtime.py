"""Time as it passes: work is handed out when it begins, and an answer counts from the moment it is
there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import numpy as np

from poise.core.protocols import Clock, WorkOrder
from poise.core.types import Assignment, Cohort, InFlight, Step
from poise.engine.state import State

Key = tuple[int, int, int]

LONGEST = 0.5  # seconds between two looks at the clock


@runtime_checkable
class RealTimeBackend(Protocol):
    """A backend whose clients really take their time."""

    def hand_out(self, order: WorkOrder, at_work: int) -> None:
        """Let these pieces of work begin; ``at_work`` clients work at the same time."""

    def answered(self, wait: float) -> Iterable[Key]:
        """The pieces of work whose answers have come, or will not come any more, since it was last
        asked.

        Where there are none, it waits for so many seconds at most.
        """

    def call_off(self, assignments: Iterable[Assignment]) -> None:
        """Answers to these are not wanted any more."""

    def seconds(self) -> float:
        """A clock on the wall."""


@dataclass
class RealTime:
    """The steps of a clock, in seconds that passed while the run waited for its clients.

    As in simulated time, what the server does between two steps takes none: were a measurement
    longer than a deadline or a window, the next one would be over before anybody had been asked.

    A clock looks at arrivals only: what it does at time t depends on those until t. So its next
    step is found by asking it again and again, with work that has not been answered at infinity,
    until the step it names lies in the past. Under a clock that is asked this way, the times of
    work that is under way are never known.

    Args:
        clock: when it counts.
        carrier: the backend.
        reports: what clients are asked to report beside their update.
        end: after so many seconds a run takes no further step.
        stop: true ends the waiting.
    """

    clock: Clock
    carrier: RealTimeBackend
    reports: frozenset[str] = frozenset()
    end: float = np.inf
    stop: Callable[[], bool] = lambda: False
    _out: dict[Key, float] = field(
        default_factory=dict
    )  # when each answer came, infinity where it has not

    prefetchable = False

    def launch(self, cohort: Cohort, in_flight: InFlight, version: int) -> tuple[Assignment, ...]:
        """The work that a cohort starts now; nobody knows how long it will take."""
        rows = zip(
            cohort.clients.tolist(),
            cohort.occurrences().tolist(),
            cohort.weights.tolist(),
            strict=True,
        )
        return tuple(Assignment(np.inf, c, version, o, w) for c, o, w in rows)

    def next_step(self, started: tuple[Assignment, ...], state: State) -> tuple[Step, InFlight]:
        """Hand out what has begun, and wait until the clock has a step for what came back."""
        in_flight, index = state.in_flight, state.index
        began = (
            self.carrier.seconds() - in_flight.now
        )  # time goes on where it was, as for a run that was taken up
        here = {key: min(came, in_flight.now) for key, came in self._out.items() if came < np.inf}
        self._out |= here  # seen in a look that lasted beyond the step: there it is all the same
        flying = (*in_flight.assignments, *started)
        new = [
            f for f in flying if f.key not in self._out
        ]  # after a resume, all that was under way
        order = WorkOrder(new, state.models, self.reports, state.algorithm_state)
        self.carrier.hand_out(order, at_work=len({f.client for f in flying}))
        self._out |= dict.fromkeys((f.key for f in new), np.inf)
        wait = 0.0
        while True:
            came, now = tuple(self.carrier.answered(wait)), self.carrier.seconds() - began
            self._out |= dict.fromkeys(came, now)
            step, left = self.clock.advance(
                replace(in_flight, assignments=self._seen(in_flight.assignments)),
                self._seen(started),
                index,
            )
            if step.time <= now:
                return self._landed(step), InFlight(
                    left.now, tuple(replace(f, finish=np.inf) for f in left.assignments)
                )
            if now > self.end or self.stop():
                self.carrier.call_off(flying)
                return Step(index, np.inf, ()), in_flight
            wait = min(LONGEST, step.time - now)

    def _seen(self, assignments: Iterable[Assignment]) -> tuple[Assignment, ...]:
        """Flights with the times at which their answers came."""
        return tuple(replace(f, finish=self._out[f.key]) for f in assignments)

    def _landed(self, step: Step) -> Step:
        for f in (*step.assignments, *step.late):
            del self._out[f.key]
        self.carrier.call_off(step.late)
        return step
