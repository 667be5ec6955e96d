"""Simulated time: the time of an answer is known when the work starts."""

from __future__ import annotations

from dataclasses import dataclass

from poise.core.protocols import Clock, Times
from poise.core.timeline import launch, next_step
from poise.core.types import Assignment, Cohort, InFlight, Step
from poise.engine.state import State


@dataclass(frozen=True)
class SimulatedTime:
    """The steps of a clock, in simulated time."""

    clock: Clock
    times: Times
    seed: int

    prefetchable = True

    def launch(
        self, cohort: Cohort, in_flight: InFlight, version: int
    ) -> tuple[Assignment, ...]:
        """Return the work that a cohort starts now."""
        return launch(
            cohort, self.times, now=in_flight.now, version=version, seed=self.seed
        )

    def next_step(
        self, started: tuple[Assignment, ...], state: State
    ) -> tuple[Step, InFlight]:
        """Return the clock's next step and the work in flight after it."""
        return next_step(
            self.clock,
            self.times,
            in_flight=state.in_flight,
            started=started,
            index=state.index,
        )
