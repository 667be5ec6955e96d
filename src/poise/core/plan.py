"""What a run is to do, and where it stands: the values that the engine's loop passes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from poise.core.durations import SAME
from poise.core.errors import IncompatibleParts
from poise.core.memory import Memories, Named, memory_of
from poise.core.protocols import Attack, Clock, Fits, Gauge, Sampler, Server, ServerState, Solver, Weighting
from poise.core.timeline import SimulatedTime
from poise.core.types import LOSS_REPORTS, Cohort, Flight, Floats, Record, Setting, Sky, Step
from poise.core.vectors import Stack, Vector
from poise.core.workbench import Idle

ESTIMATE = "TimeBased(times='estimated')"


@dataclass(frozen=True)
class Parts:
    """A choice for each slot."""

    solver: Solver
    sampler: Sampler
    clock: Clock
    weighting: Weighting
    server: Server
    attacks: tuple[Attack, ...] = ()

    @property
    def reports(self) -> frozenset[str]:
        """What clients are asked to report beside their update."""
        return (self.weighting.needs | self.sampler.needs) & LOSS_REPORTS

    def balance(self, setting: Setting) -> Floats | None:
        """The clock's d_i/p_i, (N,), worked out once; None where the weighting does not ask for it."""
        if "balance" not in self.weighting.needs:
            return None
        unbiased = self.clock.unbiased_weights  # type: ignore[attr-defined]
        found: Floats = setting.once("balance", lambda: unbiased(None, np.ones(setting.clients)))
        return found

    def adjacency(self, setting: Setting) -> Floats | None:
        """Importance by degree in the similarity graph, (N,); None where the weighting does not ask for it."""
        if "adjacency" not in self.weighting.needs:
            return None
        found: Floats = setting.once("adjacency", lambda: setting.neighbours().sum(axis=1))
        return found

    @property
    def by_given_times(self) -> bool:
        """Whether weights follow from the durations that the clock was given."""
        clock = self.clock
        some = any(getattr(clock, name, None) is not None for name in ("deadline", "enough"))
        return "balance" in self.weighting.needs and (not clock.waits or some)

    @property
    def perturbs(self) -> bool:
        """Whether the solver is to be sent the mean of each client's neighbours."""
        return bool(getattr(self.solver, "neighbours", False))

    def fit(self, setting: Setting) -> None:
        """Refuse a composition whose parts do not fit the federation or each other."""
        chosen: list[Fits] = [self.solver, self.sampler, self.clock, self.weighting, self.server, *self.attacks]
        for one in chosen:
            one.fit(setting)
        self._fit_each_other(setting)

    def _fit_each_other(self, setting: Setting) -> None:
        clock, sampler, weighting = (type(p).__name__ for p in (self.clock, self.sampler, self.weighting))
        if not self.clock.waits and getattr(self.sampler, "independent_draws", False):
            raise IncompatibleParts(
                f"{sampler}: a client drawn twice would be in flight twice under {clock}", "leave out independent_draws"
            )
        if not self.clock.waits and self.perturbs:
            raise IncompatibleParts(
                f"{type(self.solver).__name__}: under {clock} a mean of neighbours would be kept for every flight",
                "use Synchronous()",
            )
        if "balance" not in self.weighting.needs:
            return
        if not hasattr(self.clock, "unbiased_weights"):
            raise IncompatibleParts(f"{weighting}: {clock} does not know its long-run times", ESTIMATE)
        choosy = not self.clock.waits or getattr(self.clock, "enough", None) is not None
        if choosy and not getattr(self.sampler, "everyone", False):
            raise IncompatibleParts(
                f"{weighting}: the times of {clock} hold when every client starts again at once, but {sampler} chooses",
                f"use Full(), or {ESTIMATE}",
            )
        self.balance(setting)


@dataclass(frozen=True)
class State:
    """Where a run stands after ``index`` aggregations."""

    index: int
    theta: Vector
    server: ServerState
    sky: Sky = Sky()
    models: Mapping[int, Vector] = field(default_factory=dict)  # versions that work in flight began from
    memories: Memories = Memories()


@dataclass(frozen=True)
class Plan:
    """What to do and for how long."""

    parts: Parts
    setting: Setting
    seed: int
    rounds: int | None = None
    time: float | None = None
    evaluate_every: int = 1
    metrics: frozenset[str] = frozenset()
    drop_refused: bool = False
    gauges: tuple[Gauge, ...] = ()
    keep_updates: bool = False
    personal: bool = False

    @property
    def idle(self) -> Idle | None:
        """Dishonest clients whose work nobody looks at; None where clients keep something of their work."""
        lazy = {c for a in self.parts.attacks if not a.works for c in a.clients}
        lazy -= {c for a in self.parts.attacks if a.works for c in a.clients}
        keeps = self.personal or self.parts.perturbs or memory_of(self.parts.solver) is not None
        return None if keeps or not lazy else Idle(frozenset(lazy), self.setting.sizes, self.parts.solver)

    @property
    def end(self) -> float:
        """The last time at which a step is taken."""
        return np.inf if self.time is None else self.time * (1 + SAME)

    def full(self, steps: int) -> bool:
        """Whether so many steps are all that the budget of rounds allows."""
        return self.rounds is not None and steps >= self.rounds

    def over(self, step: Step) -> bool:
        """Whether a step lies beyond the budget."""
        return step.time == np.inf or step.time > self.end or self.full(step.index)


class Pace(Protocol):
    """How a run goes through the steps of its clock: in simulated time, or as time passes."""

    @property
    def ahead(self) -> bool:
        """Whether the next step can be known before this one is recorded."""

    def launch(self, cohort: Cohort, sky: Sky, version: int) -> tuple[Flight, ...]:
        """The work that a cohort starts now on a model version."""

    def next_step(
        self, sky: Sky, started: tuple[Flight, ...], index: int, models: Mapping[int, Vector], memories: Memories
    ) -> tuple[Step, Sky]:
        """The clock's next step, and the sky after it; ``models`` and ``memories`` are what clients are sent."""


def simulated(plan: Plan) -> Pace:
    """The steps of a plan's clock in simulated time."""
    clock = plan.parts.clock
    return SimulatedTime(clock, clock.times(plan.setting.clients), plan.seed)


class Journal(Protocol):
    """Where the engine writes what happened."""

    def append(
        self, record: Record, theta: Vector, server: ServerState, own: Mapping[int, Named], updates: Stack | None = None
    ) -> None:
        """Keep a record, what it led to, and what its clients keep, durably, before the next round begins.

        ``updates`` are those that were aggregated, one row for each contribution; None where they need not be kept.
        """
