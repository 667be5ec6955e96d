"""What a run is to do: a choice for each slot, a budget, and what is measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from poise.core.algorithm_state import memory_of
from poise.core.capabilities import KnowsLongRunWeights
from poise.core.durations import SAME
from poise.core.errors import IncompatibleParts
from poise.core.protocols import (
    Aggregator,
    Attack,
    Channel,
    Clock,
    Fits,
    Personal,
    Probe,
    Sampler,
    Server,
    Solver,
    Weighting,
)
from poise.core.slots import RUN_SLOTS
from poise.core.traits import ChannelTraits, ClockTraits, SamplerTraits, still_holds, traits_of
from poise.core.types import LOSS_REPORTS, Floats, Setting, Step
from poise.engine.executor import IdleClients
from poise.engine.simulated_time import SimulatedTime
from poise.engine.state import Pace

ESTIMATE = "TimeBased(times='estimated')"


@dataclass(frozen=True)
class Parts:
    """A choice for each slot."""

    solver: Solver
    sampler: Sampler
    clock: Clock
    weighting: Weighting
    server: Server
    aggregator: Aggregator
    channel: Channel
    personal: Personal | None = None
    attacks: tuple[Attack, ...] = ()

    @property
    def reports(self) -> frozenset[str]:
        """What clients are asked to report beside their update."""
        return (self.weighting.needs | self.sampler.needs) & LOSS_REPORTS

    def base_columns(self, step: Step, setting: Setting) -> dict[str, Any]:
        """What sampler, clock and graph say of the clients of a step: base weights, importance, and
        what follows.
        """
        clients, base = step.clients, step.weights
        importance = setting.importance[clients]
        plain = base if self.clock.waits else importance
        balance, degree = self.balance(setting), self.adjacency(setting)
        return {
            "base_weights": base,
            "importance": importance,
            "identical_weights": self.clock.identical_weights(plain, setting.clients),
            "balance": None if balance is None else balance[clients],
            "adjacency": None if degree is None else degree[clients],
        }

    def balance(self, setting: Setting) -> Floats | None:
        """The clock's d_i/p_i, (N,), worked out once; None where the weighting does not ask for
        it.
        """
        clock = self.clock
        if "balance" not in self.weighting.needs or not isinstance(clock, KnowsLongRunWeights):
            return None
        found: Floats = setting.once(
            "balance", lambda: clock.unbiased_weights(None, np.ones(setting.clients))
        )
        return found

    def adjacency(self, setting: Setting) -> Floats | None:
        """Importance by degree in the similarity graph, (N,); None where the weighting does not ask
        for it.
        """
        if "adjacency" not in self.weighting.needs:
            return None
        found: Floats = setting.once("adjacency", lambda: setting.neighbours().sum(axis=1))
        return found

    @property
    def by_given_times(self) -> bool:
        """Whether weights follow from the durations that the clock was given."""
        late = traits_of(self.clock, ClockTraits).leaves_clients_behind
        return "balance" in self.weighting.needs and late

    @property
    def perturbs(self) -> bool:
        """Whether the solver is to be sent the mean of each client's neighbours."""
        memory = memory_of(self.solver)
        return memory is not None and memory.neighbours

    def chosen(self) -> Iterator[tuple[str, Fits]]:
        """Every part but the attacks, with the name of its slot; a slot that is empty is left
        out.
        """
        for slot in RUN_SLOTS:
            part: Fits | None = vars(self)[slot]
            if part is not None:
                yield slot, part

    def fit_each_other(self, setting: Setting) -> None:
        """Refuse parts that do not fit each other."""
        clock, sampler, weighting = (
            type(p).__name__ for p in (self.clock, self.sampler, self.weighting)
        )
        drawn = traits_of(self.sampler, SamplerTraits)
        if not self.clock.waits and drawn.repeats_clients:
            raise IncompatibleParts(
                f"{sampler}: a client drawn twice would be in flight twice under {clock}",
                "leave out independent_draws",
                where=("sampler", "independent_draws"),
            )
        if setting.on_demand and self.channel.keeps:
            name = type(self.channel).__name__
            raise IncompatibleParts(
                (
                    f"{name}: clients keep state between rounds, but these are made on demand and "
                    "forget"
                ),
                "use a channel without client state",
                where=("channel",),
            )
        if self.channel.keeps and traits_of(self.sampler, SamplerTraits).repeats_clients:
            raise IncompatibleParts(
                (
                    f"{type(self.channel).__name__}: a client that works twice in a round would send "
                    "what it keeps twice"
                ),
                "leave independent_draws out, or use a channel without client state",
                where=("channel",),
            )
        if not self.clock.waits and self.perturbs:
            raise IncompatibleParts(
                (
                    f"{type(self.solver).__name__}: under {clock} a mean of neighbours would be kept "
                    "for every assignment"
                ),
                "use Synchronous()",
                where=("solver",),
            )
        if "balance" not in self.weighting.needs:
            return
        if not isinstance(self.clock, KnowsLongRunWeights) or not still_holds(
            self.clock, "unbiased_weights"
        ):
            message = f"{weighting}: {clock} does not know its long-run times"
            raise IncompatibleParts(message, ESTIMATE, where=("weighting",))
        if traits_of(self.clock, ClockTraits).balance_needs_everyone and not drawn.selects_everyone:
            raise IncompatibleParts(
                (
                    f"{weighting}: the times of {clock} hold when every client starts again at once, "
                    f"but {sampler} chooses"
                ),
                f"use Full(), or {ESTIMATE}",
                where=("weighting",),
            )
        self.balance(setting)


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
    probes: tuple[Probe, ...] = ()
    keep_updates: bool = False

    @property
    def idle(self) -> IdleClients | None:
        """Dishonest clients whose work nobody looks at; None where clients keep something of their
        work.
        """
        lazy = {c for a in self.parts.attacks if not a.works for c in a.clients}
        lazy -= {c for a in self.parts.attacks if a.works for c in a.clients}
        parts = self.parts
        changes_nothing = traits_of(parts.channel, ChannelTraits).identity
        keeps = (
            parts.personal is not None or memory_of(parts.solver) is not None or not changes_nothing
        )
        if keeps or not lazy:
            return None
        return IdleClients(frozenset(lazy), self.setting.sizes, parts.solver)

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


def simulated(plan: Plan) -> Pace:
    """The steps of a plan's clock in simulated time."""
    clock = plan.parts.clock
    return SimulatedTime(clock, clock.times(plan.setting.clients), plan.seed)
