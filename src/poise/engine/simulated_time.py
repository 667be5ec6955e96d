"""Simulated time: when an answer comes is known when the work begins."""

from __future__ import annotations

from dataclasses import dataclass

from poise.core.protocols import Clock, Times
from poise.core.timeline import launch, next_step
from poise.core.types import Cohort, Flight, Sky, Step
from poise.engine.state import State


@dataclass(frozen=True)
class SimulatedTime:
    """The steps of a clock, in simulated time."""

    clock: Clock
    times: Times
    seed: int

    ahead = True

    def launch(self, cohort: Cohort, sky: Sky, version: int) -> tuple[Flight, ...]:
        """The work that a cohort starts now."""
        return launch(cohort, self.times, sky.now, version, self.seed)

    def next_step(self, started: tuple[Flight, ...], state: State) -> tuple[Step, Sky]:
        """The clock's next step."""
        return next_step(self.clock, self.times, state.sky, started, state.index)
