"""Real time: work takes as long as it takes; answers count from their arrival."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import numpy as np

from poise.core.protocols import Clock, WorkOrder
from poise.core.types import Assignment, Cohort, InFlight, Step
from poise.engine.state import State

Key = tuple[int, int, int]
"""The identity of an assignment: (version, client, occurrence)."""

LONGEST_WAIT = 0.5  # seconds between two polls of the clock


@runtime_checkable
class RealTimeBackend(Protocol):
    """A backend whose clients take real time."""

    def hand_out(self, order: WorkOrder, at_work: int) -> None:
        """Start these assignments; ``at_work`` clients work at the same time."""

    def answered(self, wait: float) -> Iterable[Key]:
        """Return the assignments that were answered, or given up, since the last call.

        If there are none, wait for an answer, for at most ``wait`` seconds.
        """

    def call_off(self, assignments: Iterable[Assignment]) -> None:
        """Ignore the answers to these assignments."""

    def seconds(self) -> float:
        """Return the time of a wall clock, in seconds."""


@dataclass
class RealTime:
    """The steps of a clock, in the seconds that a run spends waiting for its clients.

    As in simulated time, the server's own work between two steps takes no time.
    Otherwise a measurement longer than a deadline or window would end the next window
    before any client could start.

    What a clock does at time t depends only on the arrivals until t. So the server
    polls the clock, with the finish times of unanswered work set to infinity, until the
    returned step is due.

    Args:
        clock: decides when answers count.
        backend: executes the work.
        reports: the losses that clients must report.
        end: no step is later than this, in seconds.
        stop: True ends the waiting.
    """

    clock: Clock
    backend: RealTimeBackend
    reports: frozenset[str] = frozenset()
    end: float = np.inf
    stop: Callable[[], bool] = lambda: False
    # inf while unanswered
    _answer_times: dict[Key, float] = field(default_factory=dict)

    prefetchable = False

    def launch(
        self, cohort: Cohort, in_flight: InFlight, version: int
    ) -> tuple[Assignment, ...]:
        """Return the work that a cohort starts now, with unknown finish times."""
        rows = zip(
            cohort.clients.tolist(),
            cohort.occurrences().tolist(),
            cohort.weights.tolist(),
            strict=True,
        )
        return tuple(
            Assignment(np.inf, client, version, occurrence, weight)
            for client, occurrence, weight in rows
        )

    def next_step(
        self, started: tuple[Assignment, ...], state: State
    ) -> tuple[Step, InFlight]:
        """Hand out the new work, and wait until a step of the clock is due."""
        in_flight = state.in_flight
        # time continues where the last step ended
        began = self.backend.seconds() - in_flight.now
        self._cap_answer_times(in_flight.now)
        assignments = (*in_flight.assignments, *started)
        self._hand_out(assignments, state)
        wait = 0.0
        while True:
            answered = tuple(self.backend.answered(wait))
            now = self.backend.seconds() - began
            self._answer_times |= dict.fromkeys(answered, now)
            known = replace(
                in_flight, assignments=self._with_answer_times(in_flight.assignments)
            )
            step, left = self.clock.advance(
                known, self._with_answer_times(started), state.index
            )
            if step.time <= now:
                return self._finished(step), _unanswered(left)
            if now > self.end or self.stop():
                self.backend.call_off(assignments)
                return Step(state.index, np.inf, ()), in_flight
            wait = min(LONGEST_WAIT, step.time - now)

    def _cap_answer_times(self, now: float) -> None:
        """Move answers that arrived while the server worked back to the step's time."""
        for key, time in self._answer_times.items():
            if time < np.inf:
                self._answer_times[key] = min(time, now)

    def _hand_out(self, assignments: tuple[Assignment, ...], state: State) -> None:
        """Start the assignments that are not yet out: all of them after a resume."""
        new = [a for a in assignments if a.key not in self._answer_times]
        order = WorkOrder(
            new,
            state.models,
            reports=self.reports,
            algorithm_state=state.algorithm_state,
        )
        self.backend.hand_out(order, at_work=len({a.client for a in assignments}))
        self._answer_times |= dict.fromkeys((a.key for a in new), np.inf)

    def _with_answer_times(
        self, assignments: Iterable[Assignment]
    ) -> tuple[Assignment, ...]:
        """Return assignments with the times at which their answers arrived."""
        return tuple(replace(a, finish=self._answer_times[a.key]) for a in assignments)

    def _finished(self, step: Step) -> Step:
        """Forget the assignments of a step, and call off the late ones."""
        for assignment in (*step.assignments, *step.late):
            del self._answer_times[assignment.key]
        self.backend.call_off(step.late)
        return step


def _unanswered(in_flight: InFlight) -> InFlight:
    """Return work in flight with unknown finish times."""
    assignments = tuple(replace(a, finish=np.inf) for a in in_flight.assignments)
    return InFlight(in_flight.now, assignments)
