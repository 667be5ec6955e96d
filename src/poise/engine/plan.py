"""`Parts`: one part per slot. `Plan`: parts, budget and metrics of a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from poise.core.algorithm_state import memory_of
from poise.core.capabilities import KnowsLongRunWeights, final_weightings
from poise.core.durations import SAME
from poise.core.end_rules import EndRules
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
from poise.core.traits import (
    AggregatorTraits,
    ChannelTraits,
    ClockTraits,
    SamplerTraits,
    SolverTraits,
    WeightingTraits,
    still_holds,
    traits_of,
)
from poise.core.types import LOSS_REPORTS, Floats, Setting, Step
from poise.engine.executor import IdleClients
from poise.engine.simulated_time import SimulatedTime
from poise.engine.state import Pace
from poise.engine.validation import Limits

ESTIMATE = "TimeBased(times='estimated')"


@dataclass(frozen=True)
class Parts:
    """One part per slot, and the attacks."""

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
        """The losses that clients must report with their update."""
        return (self.weighting.needs | self.sampler.needs) & LOSS_REPORTS

    def base_columns(self, step: Step, setting: Setting) -> dict[str, Any]:
        """Return the `RoundUpdates` columns from sampler, clock and graph."""
        clients = step.clients
        base_weights = step.weights
        importance = setting.importance[clients]
        base = base_weights if self.clock.waits else importance
        balance = self.balance(setting)
        adjacency = self.adjacency(setting)
        return {
            "base_weights": base_weights,
            "importance": importance,
            "identical_weights": self.clock.identical_weights(base, setting.clients),
            "balance": None if balance is None else balance[clients],
            "adjacency": None if adjacency is None else adjacency[clients],
        }

    def balance(self, setting: Setting) -> Floats | None:
        """Return the clock's d_i/p_i, (N,); None if the weighting does not need it."""
        if "balance" not in self.weighting.needs:
            return None
        balance: Floats | None = setting.once(
            "balance", lambda: self._balance(setting.clients)
        )
        return balance

    def _balance(self, clients: int) -> Floats | None:
        if not isinstance(self.clock, KnowsLongRunWeights):
            return None
        return self.clock.unbiased_weights(None, np.ones(clients))

    def adjacency(self, setting: Setting) -> Floats | None:
        """Return the importance by degree in the graph, (N,); None if not needed."""
        if "adjacency" not in self.weighting.needs:
            return None
        adjacency: Floats = setting.once(
            "adjacency", lambda: setting.neighbours().sum(axis=1)
        )
        return adjacency

    @property
    def by_given_times(self) -> bool:
        """Whether the weights follow from the durations that the clock was given."""
        leaves_clients_behind = traits_of(self.clock, ClockTraits).leaves_clients_behind
        return "balance" in self.weighting.needs and leaves_clients_behind

    @property
    def perturbs(self) -> bool:
        """Whether the server sends each client the mean of its neighbours' models."""
        memory = memory_of(self.solver)
        return memory is not None and memory.neighbours

    def chosen(self) -> Iterator[tuple[str, Fits]]:
        """Yield the parts with the names of their slots, without attacks."""
        for slot in RUN_SLOTS:
            part: Fits | None = vars(self)[slot]
            if part is not None:
                yield slot, part

    def fit_each_other(self, setting: Setting) -> None:
        """Raise if the parts do not fit each other."""
        self._check_repeated_clients()
        self._check_channel_state(setting)
        self._check_neighbours()
        self._check_latest()
        self._check_sums(setting)
        if "balance" in self.weighting.needs:
            self._check_balance()
            self.balance(setting)
        for weighting in final_weightings(self.weighting):
            if traits_of(weighting, WeightingTraits).times == "elapsed":
                self._check_elapsed(weighting)

    def _check_repeated_clients(self) -> None:
        """Raise if a client could be in flight twice."""
        if (
            not self.clock.waits
            and traits_of(self.sampler, SamplerTraits).repeats_clients
        ):
            sampler = type(self.sampler).__name__
            clock = type(self.clock).__name__
            raise IncompatibleParts(
                f"{sampler}: a client drawn twice would be in flight twice under {clock}",
                "leave independent_draws out",
                where=("sampler", "independent_draws"),
            )

    def _check_sums(self, setting: Setting) -> None:
        """Raise if the clients should send sums and the task has none, or the reverse."""
        sends_sums = traits_of(self.solver, SolverTraits).ignores_start
        solver = type(self.solver).__name__
        if sends_sums and not setting.sums:
            raise IncompatibleParts(
                f"{solver}: clients send sums over their samples, and this task has none",
                "use the task poise.ridge(…), or a solver with gradient steps such as SGD",
                where=("solver",),
            )
        if setting.sums and not sends_sums:
            raise IncompatibleParts(
                f"{solver}: this task is solved by sums over the clients' samples, not by steps",
                "use the solver Sums()",
                where=("solver",),
            )

    def _check_channel_state(self, setting: Setting) -> None:
        """Raise if the clients cannot keep the state of the channel."""
        if not self.channel.keeps:
            return
        channel = type(self.channel).__name__
        if setting.on_demand:
            raise IncompatibleParts(
                f"{channel}: clients must keep state between rounds, but these clients are made on "
                "demand and keep none",
                "use a channel without client state",
                where=("channel",),
            )
        if traits_of(self.sampler, SamplerTraits).repeats_clients:
            raise IncompatibleParts(
                f"{channel}: a client that works twice in a round would send its state twice",
                "leave independent_draws out, or use a channel without client state",
                where=("channel",),
            )

    def _check_neighbours(self) -> None:
        """Raise if the server would keep many means of neighbours per client."""
        if not self.clock.waits and self.perturbs:
            solver = type(self.solver).__name__
            clock = type(self.clock).__name__
            raise IncompatibleParts(
                f"{solver}: under {clock} the server would keep one mean of neighbours for every "
                "assignment in flight",
                "use Synchronous()",
                where=("solver",),
            )

    def _check_latest(self) -> None:
        """Raise if a client could have two latest answers."""
        latest = traits_of(self.aggregator, AggregatorTraits).latest
        if latest and traits_of(self.sampler, SamplerTraits).repeats_clients:
            raise IncompatibleParts(
                f"{type(self.aggregator).__name__}: a client that works twice in a round "
                "has no single latest answer",
                "leave independent_draws out",
                where=("aggregator",),
            )

    def _check_balance(self) -> None:
        """Raise if the clock cannot tell how often each client arrives."""
        weighting = type(self.weighting).__name__
        clock = type(self.clock).__name__
        has_weights = isinstance(self.clock, KnowsLongRunWeights)
        if not has_weights or not still_holds(self.clock, "unbiased_weights"):
            raise IncompatibleParts(
                f"{weighting}: {clock} does not know its long-run times",
                f"use {ESTIMATE}",
                where=("weighting",),
            )
        needs_everyone = traits_of(self.clock, ClockTraits).balance_needs_everyone
        if (
            needs_everyone
            and not traits_of(self.sampler, SamplerTraits).selects_everyone
        ):
            raise IncompatibleParts(
                f"{weighting}: the times of {clock} hold if every client starts again at once, "
                f"but {type(self.sampler).__name__} selects some clients only",
                f"use Full(), or {ESTIMATE}",
                where=("weighting",),
            )

    def _check_elapsed(self, weighting: Weighting) -> None:
        """Raise if an answer does not count for all the time since the last one."""
        clock = traits_of(self.clock, ClockTraits)
        if not clock.leaves_clients_behind:
            return
        why = ""
        if clock.one_version:
            why = f"{type(self.clock).__name__} leaves out late answers"
        elif not traits_of(self.sampler, SamplerTraits).selects_everyone:
            why = f"{type(self.sampler).__name__} selects some clients only"
        if why:
            raise IncompatibleParts(
                f"{type(weighting).__name__}: elapsed times are for clients that start "
                f"again at once and whose answers all count, but {why}",
                f"use {ESTIMATE}",
                where=("weighting",),
            )


@dataclass(frozen=True)
class Plan:
    """What the engine does, and for how long.

    Args:
        parts: one part per slot.
        setting: what the parts may know of the federation.
        seed: of every draw.
        rounds: budget of aggregations; None for no limit.
        time: budget of simulated time; None for no limit.
        evaluate_every: measure after every so many aggregations.
        metrics: names of the metrics to measure.
        drop_refused: continue without bad updates, instead of stopping.
        limits: what the server believes of an update.
        probes: measure every update.
        keep_updates: store every update in the ledger.
        end_rules: what ends the run before its budget is used up.
    """

    parts: Parts
    setting: Setting
    seed: int
    rounds: int | None = None
    time: float | None = None
    evaluate_every: int = 1
    metrics: frozenset[str] = frozenset()
    drop_refused: bool = False
    limits: Limits = Limits()
    probes: tuple[Probe, ...] = ()
    keep_updates: bool = False
    end_rules: EndRules = EndRules()

    @property
    def idle(self) -> IdleClients | None:
        """Dishonest clients whose work is unused; None if clients keep state."""
        parts = self.parts
        unchanged = traits_of(parts.channel, ChannelTraits).identity
        stateless = parts.personal is None and memory_of(parts.solver) is None
        if not unchanged or not stateless:
            return None
        working: set[int] = set()
        idle: set[int] = set()
        for attack in parts.attacks:
            if attack.works:
                working.update(attack.clients)
            else:
                idle.update(attack.clients)
        idle -= working
        if not idle:
            return None
        return IdleClients(frozenset(idle), self.setting.sizes, solver=parts.solver)

    @property
    def end(self) -> float:
        """The time of the last possible step."""
        if self.time is None:
            return np.inf
        return self.time * (1 + SAME)

    def full(self, steps: int) -> bool:
        """Return whether this many steps use up the budget of rounds."""
        return self.rounds is not None and steps >= self.rounds

    def over(self, step: Step) -> bool:
        """Return whether a step lies beyond the budget."""
        return step.time == np.inf or step.time > self.end or self.full(step.index)


def simulated(plan: Plan) -> Pace:
    """Return the steps of a plan's clock in simulated time."""
    clock = plan.parts.clock
    return SimulatedTime(clock, clock.times(plan.setting.clients), seed=plan.seed)
