"""A composition: everything that defines a run, checked before anything is computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import tomli_w

from poise import engine
from poise._version import __version__
from poise.auditing.probe import AuditProbe
from poise.config.run_options import RunOptions
from poise.core.algorithm_state import memory_of
from poise.core.capabilities import Seeded
from poise.core.errors import IncompatibleParts, InvalidOption, errors_at, suggest
from poise.core.federations import (
    DecidesMeasuring,
    FederationLike,
    HasClasses,
    HasClientTraits,
    HasDigest,
    HasMembers,
    ReadableFederation,
    SendsMessages,
    TaskLike,
)
from poise.core.numerics import mkl_mode
from poise.core.parts import describe
from poise.core.protocols import Oracle, Personal, Probe
from poise.core.sensitivity import Psi, SensitivityProbe
from poise.core.traits import AggregatorTraits, AttackTraits, ServerTraits, traits_of
from poise.core.types import Floats, Ints, Setting
from poise.core.vectors import Layout
from poise.engine.local_work import BackendPart, LocalWork
from poise.privacy.budget import Budget

OF_CLIENTS = ("client_", "train_", "own_")
"""How the names of metrics begin that are measured client by client."""

TABLE_LIMIT = 10_000  # clients beyond which a run keeps no table of them


@dataclass(frozen=True)
class Composition:
    """Everything that defines a run.

    Args:
        federation: who owns what.
        task: what is learned.
        parts: a part for each slot.
        options: how long the run lasts, what it measures and keeps; its backend is a part.
        unlearning: what later requests to forget will guarantee.
    """

    federation: FederationLike
    task: TaskLike
    parts: engine.Parts
    options: RunOptions
    unlearning: Budget | None = None

    @property
    def seed(self) -> int:
        """The seed of every draw."""
        return self.options.seed

    @property
    def rounds(self) -> int | None:
        """The budget of aggregations."""
        return self.options.rounds

    @property
    def time(self) -> float | None:
        """The budget of simulated time."""
        return self.options.time

    @property
    def backend(self) -> BackendPart:
        """Where work is executed."""
        part: BackendPart = self.options.backend
        return part

    def with_options(self, **changes: Any) -> Composition:
        """The same run with other options."""
        return replace(self, options=replace(self.options, **changes))

    def setting(self, oracle: Oracle) -> Setting:
        """What the parts may know of the federation."""
        fed = self.federation
        few = not fed.on_demand and fed.clients <= TABLE_LIMIT
        majority: Ints | None = None
        if few and isinstance(fed, HasClasses) and fed.classes:
            majority = fed.label_counts().argmax(axis=1)
        similar: Callable[[], Floats] | None = None
        if not fed.on_demand and fed.clients >= 2:
            similar = lambda: _shares(fed)
        return Setting(
            fed.clients,
            fed.sizes,
            importance=fed.importance,
            batches=oracle.batches,
            on_demand=fed.on_demand,
            majority=majority,
            similar=similar,
        )

    def plan(self, oracle: Oracle) -> engine.Plan:
        """The engine's orders; raises where the parts do not fit."""
        setting = self.setting(oracle)
        fit(self.parts, setting)
        options = self.options
        return engine.Plan(
            seeded(self.parts, self.seed),
            setting,
            seed=options.seed,
            rounds=options.rounds,
            time=options.time,
            evaluate_every=options.evaluate_every,
            metrics=self._metrics(oracle),
            drop_refused=options.bad_updates == "drop",
            probes=self.probes(oracle.layout),
            keep_updates=options.keep_updates,
        )

    def wire(self, oracle: Oracle) -> engine.Wire:
        """How updates travel, and which entries of a model stay with each client."""
        parts = self.parts
        if parts.personal is None:
            return engine.Wire(oracle.layout, parts.channel)
        with errors_at("personal"):
            return engine.Wire(oracle.layout, parts.channel, _personal(parts.personal, oracle))

    def probes(self, layout: Layout) -> tuple[Probe, ...]:
        """What is read of every update."""
        limit = np.inf
        if self.unlearning is not None and self.unlearning.contraction(self.parts.solver) == 1:
            limit = self.unlearning.limit  # sensitivities that fade may come back below it
        server = traits_of(self.parts.server, ServerTraits)
        linear = traits_of(self.parts.aggregator, AggregatorTraits).linear
        adds = server.adds and server.noise == 0 and memory_of(self.parts.solver) is None
        audit = AuditProbe(layout, self.seed, received=not (adds and linear))
        return audit, SensitivityProbe(
            self._rate, limit
        )  # the first computes in its pass what both need

    @property
    def _rate(self) -> float:
        """The server's learning rate; 1 where no one number says it."""
        rate = traits_of(self.parts.server, ServerTraits).rate
        return 1.0 if rate is None else rate

    def tracker(self) -> Psi:
        """An empty count of sensitivities, as the budget asked for counts them."""
        budget = self.unlearning or Budget()
        return budget.tracker(self.parts.solver, self.parts.server, self.federation.importance)

    @property
    def _budget(self) -> Budget | None:
        """The budget asked for, or the default where models are kept for one."""
        if self.unlearning is None and self.options.keep == "unlearnable":
            return Budget()
        return self.unlearning

    def _metrics(self, oracle: Oracle) -> frozenset[str]:
        """Held-out metrics (or the training loss where nothing is held out) and those asked for."""
        known = oracle.metrics
        asked = set(self.options.metrics)
        with errors_at("run", "metrics"):
            self._check_metrics(known)
            held_out = {name for name in known if not name.startswith(OF_CLIENTS)}
            if (
                self.parts.personal is not None
            ):  # no single model could be measured on held-out data
                for name in held_out & asked:
                    raise IncompatibleParts(
                        f"{name} is of one model, but clients have layers of their own",
                        f"use own_{name}",
                    )
                held_out = {name for name in known if name.startswith("own_")}
        fed = self.federation
        unasked = not fed.on_demand and (
            fed.measured if isinstance(fed, DecidesMeasuring) else True
        )
        fallback = {"train_loss"} & known if unasked else set()
        return frozenset((held_out or fallback) | asked)

    def _check_metrics(self, known: frozenset[str]) -> None:
        """Refuse metrics that the task does not have, and those that need clients who are not
        there.
        """
        for name in self.options.metrics:
            if name not in known:
                raise InvalidOption(f"unknown metric {name!r}", suggest(name, known))
            if self.federation.on_demand and name.startswith(OF_CLIENTS):
                raise IncompatibleParts(
                    f"{name} needs all clients, but they are made on demand", "leave it out"
                )

    def table(self) -> dict[str, Any]:
        """The experiment file's tables; ``data`` or ``task`` is absent where Python objects were
        given.
        """
        tables: dict[str, Any] = {}
        for name, spec in (("data", self.federation.spec), ("task", self.task.spec)):
            if spec is not None:
                tables[name] = spec
        for name, part in self.parts.chosen():
            tables[name] = describe(part)
        if self.parts.attacks:
            tables["attacks"] = [describe(attack) for attack in self.parts.attacks]
        if self.unlearning is not None:
            tables["unlearning"] = self.unlearning.table()
        tables["run"] = replace(self.options, backend=describe(self.backend)).table()
        return tables

    def facts(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """What the ledger keeps about the run: values by name, and arrays by name."""
        meta = {
            "poise": __version__,
            "seed": self.seed,
            "clients": self.federation.clients,
            "keep": self.options.keep,
            "experiment": tomli_w.dumps(self.table()),
            "status": "running",
            "mkl": mkl_mode(),
        }
        arrays = self._arrays()
        budget = self._budget
        if budget is not None:
            meta["limit"] = budget.limit
            meta["fading"] = budget.contraction(self.parts.solver)
            meta["rate"] = self._rate
            if budget.participation == "optimistic":
                arrays["optimism"] = np.asarray(self.federation.importance)
        if self.options.keep_updates:
            meta["keep_updates"] = True
        knowing = [a for a in self.parts.attacks if traits_of(a, AttackTraits).omniscient]
        if knowing:
            meta["omniscient"] = ", ".join(sorted({type(attack).__name__ for attack in knowing}))
        if isinstance(self.federation, HasDigest):
            meta["federation"] = self.federation.digest()
        return meta, arrays

    def _arrays(self) -> dict[str, np.ndarray]:
        """What the ledger keeps of every client; nothing for a federation that is too large for a
        table.
        """
        fed = self.federation
        arrays: dict[str, np.ndarray] = {}
        if fed.clients <= TABLE_LIMIT:
            arrays = {"sizes": np.asarray(fed.sizes), "importance": np.asarray(fed.importance)}
            if isinstance(fed, HasClasses) and fed.classes:
                arrays["label_counts"] = fed.label_counts()
            if isinstance(fed, HasClientTraits):
                arrays |= {
                    f"trait/{name}": np.asarray(values) for name, values in fed.traits().items()
                }
        members = fed.members if isinstance(fed, HasMembers) else None
        if (
            members is not None and members[-1] >= fed.clients
        ):  # some have left, the others moved up
            arrays["members"] = np.asarray(members)
        return arrays


def _personal(part: Personal, oracle: Oracle) -> tuple[str, ...]:
    """The names of the tensors that stay with each client; refused where they do not fit the
    model.
    """
    if oracle.module is None:
        raise IncompatibleParts(
            "personal layers need a model whose parts have names", "leave personal out"
        )
    name, layout = type(part).__name__, oracle.layout
    names, known = tuple(sorted(part.names(oracle.module))), set(oracle.module.state_dict())
    for entry in names:
        if entry not in known:
            raise IncompatibleParts(
                f"{name}: the model has no entry {entry!r}", suggest(entry, known)
            )
    if len(layout.positions(names)) == 0:
        raise IncompatibleParts(
            f"{name}: nothing that is trained would stay with clients", "leave personal out"
        )
    if {entry.name for entry in layout.parameters} <= set(names):
        raise IncompatibleParts(
            f"{name}: every trained parameter would stay with its client", "share some of them"
        )
    return names


def fit(parts: engine.Parts, setting: Setting) -> None:
    """Refuse parts that do not fit the federation or each other; the error names the slot."""
    for name, part in parts.chosen():
        with errors_at(name):
            part.fit(setting)
    for index, attack in enumerate(parts.attacks):
        with errors_at("attacks", str(index)):
            attack.fit(setting)
    parts.fit_each_other(setting)


@dataclass(frozen=True)
class Prepared:
    """A composition with the gradient oracle of its task and the engine's plan: ready to begin, or
    to go on.
    """

    composition: Composition
    oracle: Oracle
    plan: engine.Plan

    @property
    def local(self) -> LocalWork:
        """What every client of the run does."""
        return LocalWork(self.oracle, self.plan.parts.solver, self.wire)

    @property
    def wire(self) -> engine.Wire:
        """How updates travel, and which entries of a model stay with each client."""
        return self.composition.wire(self.oracle)

    def facts(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """What the ledger keeps about the run: values by name, and arrays by name."""
        meta, arrays = self.composition.facts()
        meta["trainable"] = self.oracle.layout.trainable
        if self.oracle.frozen:
            meta["frozen"] = self.oracle.frozen
        if self.wire.personal is not None:
            arrays["personal"] = self.wire.personal.numpy()
        return meta, arrays


def prepare(composition: Composition) -> Prepared:
    """Bind the task to the data and make the engine's plan; raises where something does not fit."""
    with errors_at("task"):
        oracle = composition.task.bind(composition.federation, composition.backend.device)
    return Prepared(composition, oracle, composition.plan(oracle))


def _shares(federation: FederationLike) -> Floats:
    """p_ij of the federation's similarity graph; clients on nodes of their own tell their
    messages.
    """
    from poise.graph import SimilarityGraph, similarity

    if isinstance(federation, SendsMessages):
        return SimilarityGraph(federation.messages()).shares
    return similarity(cast(ReadableFederation, federation)).shares


def seeded(parts: engine.Parts, seed: int) -> engine.Parts:
    """The parts with the draws of a server that draws named by the run's seed."""
    if not isinstance(parts.server, Seeded):
        return parts
    return replace(parts, server=parts.server.seeded(seed))
