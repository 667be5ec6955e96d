"""`Composition`: everything that defines a run, checked before any computation."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import tomli_w

from poise import engine
from poise._version import __version__
from poise.auditing.probe import AuditProbe
from poise.config.run_options import END_RULES, RunOptions
from poise.core.algorithm_state import memory_of
from poise.core.capabilities import LimitsUpdates, Seeded
from poise.core.client_names import NAMES, names_text
from poise.core.curvature import Curvature, curvature_of
from poise.core.directions import base_name, first_metric
from poise.core.end_rules import Condition, EndRules
from poise.core.errors import (
    IncompatibleParts,
    InvalidOption,
    errors_at,
    require,
    suggest,
)
from poise.core.federations import (
    DecidesMeasuring,
    FederationLike,
    HasClasses,
    HasClassNames,
    HasClientNames,
    HasClientTraits,
    HasDigest,
    HasMembers,
    HasPublicMean,
    KnowsAltered,
    MayLackName,
    ReadableFederation,
    SaysAssumed,
    SendsMessages,
    TaskLike,
)
from poise.core.layout_text import layout_text
from poise.core.numerics import mkl_mode
from poise.core.own_code import CODE, IMPORT, code_of, code_text
from poise.core.parts import describe
from poise.core.protocols import (
    ChecksMetrics,
    KnowsSampleForm,
    Oracle,
    Personal,
    Probe,
)
from poise.core.sensitivity import SENSITIVITY, Group, Psi, SensitivityProbe
from poise.core.traits import (
    AggregatorTraits,
    AttackTraits,
    ServerTraits,
    TaskTraits,
    traits_of,
)
from poise.core.types import Floats, Ints, Setting
from poise.core.vectors import Layout
from poise.engine.local_work import BackendPart, LocalWork
from poise.engine.validation import Limits
from poise.ledger.store import TENSORS
from poise.metrics.named import NAMED
from poise.privacy.budget import Budget
from poise.results.modules import SAMPLE_FORM
from poise.training.limits import with_limit
from poise.training.own_code import LAYOUT, layout_hash, modules_in, part_modules

OF_CLIENTS = ("client_", "train_", "own_", "local_")
"""Prefixes of metrics that are measured for each client."""

ALTERED = "altered"
"""The entry of the ledger with the clients that clip their updates or add noise to them."""

NO_TASK = "# no [task]: "
"""Begins the line of an experiment file that says why it has no table [task]."""

TABLE_LIMIT = 10_000  # the ledger keeps no table of more clients than this


@dataclass(frozen=True)
class Composition:
    """Everything that defines a run.

    Args:
        federation: the clients and their data.
        task: the model and the loss.
        parts: one part per slot.
        options: how long the run lasts, what it measures and keeps, and its backend, as
            a part.
        unlearning: the guarantee of later unlearning requests.
        curvature: bounds of the clients' Hessians; None if unknown.
    """

    federation: FederationLike
    task: TaskLike
    parts: engine.Parts
    options: RunOptions
    unlearning: Budget | None = None
    curvature: Curvature | None = None

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
        """Where local work is executed."""
        part: BackendPart = self.options.backend
        return part

    def with_options(self, **changes: Any) -> Composition:
        """Return the composition with other options."""
        return replace(self, options=replace(self.options, **changes))

    def without_end_rules(self) -> Composition:
        """Return the composition of a run that no rule ends early."""
        return self.with_options(**dict.fromkeys(END_RULES))

    def setting(self, oracle: Oracle) -> Setting:
        """Return what the parts may know of the federation."""
        fed = self.federation
        small = not fed.on_demand and fed.clients <= TABLE_LIMIT
        majority: Ints | None = None
        if small and isinstance(fed, HasClasses) and fed.classes:
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
            sums=traits_of(self.task, TaskTraits).sums,
        )

    def plan(self, oracle: Oracle) -> engine.Plan:
        """Return the engine's plan; raises if the parts do not fit."""
        setting = self.setting(oracle)
        parts = self.resolved().parts
        fit(parts, setting)
        options = self.options
        metrics = self._metrics(oracle)
        return engine.Plan(
            seeded(parts, self.seed),
            setting,
            seed=options.seed,
            rounds=options.rounds,
            time=options.time,
            evaluate_every=options.evaluate_every,
            metrics=metrics,
            drop_refused=options.bad_updates == "drop",
            limits=self._limits(),
            probes=self.probes(oracle.layout),
            keep_updates=options.keep_updates,
            end_rules=self._end_rules(metrics),
        )

    def _limits(self) -> Limits:
        """Return what the server believes of an update, by the loss and the backend."""
        ratio = np.inf
        if isinstance(self.backend, LimitsUpdates):
            ratio = self.backend.max_ratio
        return Limits(traits_of(self.task, TaskTraits).lowest_loss, max_ratio=ratio)

    def resolved(self) -> Composition:
        """Return the composition with a sampler that knows the limit Psi* of this run."""
        sampler = with_limit(self.parts.sampler, self.unlearning, self._budget)
        return replace(self, parts=replace(self.parts, sampler=sampler))

    def wire(self, oracle: Oracle) -> engine.Wire:
        """Return how updates travel, and which entries stay with each client."""
        parts = self.parts
        stays: tuple[str, ...] = ()
        if parts.personal is not None:
            with errors_at("personal"):
                stays = _personal_names(parts.personal, oracle)
        return engine.Wire(oracle.layout, parts.channel, stays=stays)

    def probes(self, layout: Layout) -> tuple[Probe, ...]:
        """Return the probes that measure every update."""
        limit = np.inf
        groups: tuple[Group, ...] = ()
        if self.unlearning is not None:
            groups = self.unlearning.groups
            fades = self._contraction(self.unlearning) < 1
            # a fading sensitivity could fall below it again
            if not fades and SENSITIVITY not in self.parts.sampler.needs:
                limit = self.unlearning.limit
        server = traits_of(self.parts.server, ServerTraits)
        linear = traits_of(self.parts.aggregator, AggregatorTraits).linear
        stateless = memory_of(self.parts.solver) is None
        adds_direction = server.adds and server.noise == 0 and stateless
        audit = AuditProbe(layout, self.seed, received=not (adds_direction and linear))
        # the first computes in its pass what both need
        return audit, SensitivityProbe(self._rate, limit, groups)

    @property
    def _rate(self) -> float:
        """The server's learning rate; 1 if it is not one number."""
        rate = traits_of(self.parts.server, ServerTraits).rate
        if rate is None:
            return 1.0
        return rate

    def tracker(self) -> Psi:
        """Return an empty tracker of sensitivities, with the rules of the budget."""
        budget = self.unlearning or Budget()
        return budget.tracker(
            self.parts.solver,
            self.parts.server,
            importance=self.federation.importance,
            curvature=self.curvature,
        )

    def _contraction(self, budget: Budget) -> float:
        """Return the contraction of a local step that sensitivities may count on."""
        return budget.contraction(self.parts.solver, self.curvature)

    @property
    def plans_unlearning(self) -> bool:
        """Whether the run keeps models, or declares a guarantee, for later unlearning."""
        return self.unlearning is not None or self.options.keep != "last"

    def with_curvature(self, oracle: Oracle) -> Composition:
        """Return the composition with the curvature that guarantees of unlearning need.

        A run that keeps no models for unlearning does without: `poise.unlearn` then
        measures the curvature.
        """
        if not self.plans_unlearning or self.federation.on_demand:
            return self
        known = curvature_of(self.federation, oracle, self.parts.solver.batch_size)
        return replace(self, curvature=known)

    @property
    def _budget(self) -> Budget | None:
        """The declared budget; the default budget if models are kept for unlearning."""
        if self.unlearning is None and self.options.keep == "unlearnable":
            return Budget()
        return self.unlearning

    def _metrics(self, oracle: Oracle) -> frozenset[str]:
        """Return the metrics to measure.

        These are the requested ones and all held-out metrics, or the training loss if
        there are no held-out data.
        """
        known = oracle.metrics
        requested = set(self.options.metrics)
        with errors_at("run", "metrics"):
            self._check_metrics(known)
            held_out = {name for name in known if not name.startswith(OF_CLIENTS)}
            if self.parts.personal is not None:  # there is no single model to measure
                for name in held_out & requested:
                    raise IncompatibleParts(
                        (
                            f"{name} measures one model, but each client has personal "
                            "layers"
                        ),
                        f"use own_{name}",
                    )
                held_out = {name for name in known if name.startswith("own_")}
        requested |= self._end_metrics(known)
        if held_out:
            requested |= held_out
        elif self._measures_clients():
            requested |= {"train_loss"} & known
        if isinstance(oracle, ChecksMetrics):
            with errors_at("task", "metrics"):
                oracle.check_metrics(frozenset(requested))
        return frozenset(requested)

    def _end_metrics(self, known: Collection[str]) -> set[str]:
        """Return the metrics that the rules for an early end read."""
        options = self.options
        named = {"patience_metric": options.patience_metric}
        if options.stop_when is not None:
            named["stop_when"] = Condition.parse(options.stop_when).metric
        requested = set()
        for option, metric in named.items():
            if metric is None:
                continue
            with errors_at("run", option):
                self._check_metric(metric, known)
                require(
                    metric.startswith(("train_", "own_", "local_"))
                    or not metric.startswith(OF_CLIENTS),
                    f"{metric} has one value per client",
                    f"use train_{base_name(metric)}",
                )
            requested.add(metric)
        return requested

    def _end_rules(self, metrics: Collection[str]) -> EndRules:
        """Return the rules that end the run early, for the metrics that it measures."""
        options = self.options
        condition = None
        if options.stop_when is not None:
            condition = Condition.parse(options.stop_when)
        metric = options.patience_metric or first_metric(metrics)
        if options.patience is not None and not metric:
            raise IncompatibleParts(
                "patience needs a metric, and this run measures none",
                'name one: patience_metric = "train_loss"',
                where=("run", "patience"),
            )
        return EndRules(
            condition,
            options.patience,
            patience_metric=metric,
            max_bytes=options.max_bytes,
            max_seconds=options.max_seconds,
            directions=traits_of(self.task, TaskTraits).directions,
        )

    def _measures_clients(self) -> bool:
        """Return whether the run measures its clients by default."""
        fed = self.federation
        if fed.on_demand:
            return False
        if isinstance(fed, DecidesMeasuring):
            return fed.measured
        return True

    def _check_metrics(self, known: Collection[str]) -> None:
        """Raise for metrics that the task lacks, or that need clients on demand."""
        for name in self.options.metrics:
            self._check_metric(name, known)

    def _check_metric(self, name: str, known: Collection[str]) -> None:
        """Raise for a metric that the task lacks, or that needs clients on demand."""
        if name not in known and f"train_{name}" in known:
            raise IncompatibleParts(
                f"{name} is measured on test data, but the federation has none",
                f"use train_{name} or client_{name}",
            )
        of_clients = f"client_{base_name(name)}"
        if name not in known and of_clients in known:
            raise IncompatibleParts(
                f"{name} is measured on the clients' own test data, but the "
                "federation has none",
                f"use {of_clients}, or set client_test_share = 0.2",
            )
        if name not in known:
            raise InvalidOption(f"unknown metric {name!r}", _metric_hint(name, known))
        if self.federation.on_demand and name.startswith(OF_CLIENTS):
            raise IncompatibleParts(
                f"{name} needs all clients, but these are made on demand",
                "leave it out",
            )

    def table(self) -> dict[str, Any]:
        """Return the tables of the experiment file.

        ``data`` or ``task`` is absent if Python objects define it.
        """
        tables: dict[str, Any] = {}
        modules = part_modules(self.parts)
        if modules:
            tables[IMPORT] = modules
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

    @property
    def assumed(self) -> str:
        """The value that the partition took and nobody gave, as a sentence."""
        if isinstance(self.federation, SaysAssumed):
            return self.federation.assumed
        return ""

    def _text(self) -> str:
        """Return the experiment file of the run folder."""
        text = tomli_w.dumps(self.table())
        if isinstance(self.task, MayLackName) and self.task.without_name:
            text = f"{NO_TASK}{self.task.without_name} has no name\n{text}"
        if self.assumed:
            text = f"# {self.assumed}\n{text}"
        return text

    def facts(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the ledger's facts about the run: values and arrays by name."""
        meta = {
            "poise": __version__,
            "seed": self.seed,
            "clients": self.federation.clients,
            "keep": self.options.keep,
            "experiment": self._text(),
            "status": "running",
            "mkl": mkl_mode(),
        }
        arrays = self._arrays()
        budget = self._budget
        if budget is not None:
            meta["limit"] = budget.limit
            meta["fading"] = self._contraction(budget)
            meta["rate"] = self._rate
            if budget.groups:
                meta["groups"] = json.dumps(budget.groups)
            if budget.participation == "optimistic":
                arrays["optimism"] = np.asarray(self.federation.importance)
        if self.curvature is not None:
            meta.update(self.curvature.facts())
        if isinstance(self.federation, HasPublicMean) and self.federation.public_mean:
            meta["public mean"] = self.federation.public_mean
        if isinstance(self.federation, HasClassNames) and self.federation.class_names:
            meta["class names"] = json.dumps(self.federation.class_names)
        if isinstance(self.federation, HasClientNames) and self.federation.names:
            meta |= self._name_facts(self.federation.names)
        if isinstance(self.federation, KnowsAltered) and self.federation.altered:
            meta[ALTERED] = json.dumps(self.federation.altered)
        code = code_of(modules_in(self.table()))
        if code:
            meta[CODE] = code_text(code)
        if self.options.keep_updates:
            meta["keep_updates"] = True
        meta.update(traits_of(self.task, TaskTraits).directions.facts())
        omniscient = {
            type(attack).__name__
            for attack in self.parts.attacks
            if traits_of(attack, AttackTraits).omniscient
        }
        if omniscient:
            meta["omniscient"] = ", ".join(sorted(omniscient))
        if isinstance(self.federation, HasDigest):
            meta["federation"] = self.federation.digest()
        return meta, arrays

    def _name_facts(self, names: Sequence[str]) -> dict[str, str]:
        """Return the names of the clients for the ledger; none for very many clients."""
        clients = self.federation.clients
        if len(names) != clients:
            raise IncompatibleParts(
                f"the federation has {clients} clients and {len(names)} names",
                "give every client a name, or names = None",
                where=("data",),
            )
        if clients > TABLE_LIMIT:
            return {}
        return {NAMES: names_text([str(name) for name in names])}

    def _arrays(self) -> dict[str, np.ndarray]:
        """Return the ledger's facts about clients; none for very large federations."""
        fed = self.federation
        arrays: dict[str, np.ndarray] = {}
        if fed.clients <= TABLE_LIMIT:
            arrays = {
                "sizes": np.asarray(fed.sizes),
                "importance": np.asarray(fed.importance),
            }
            if isinstance(fed, HasClasses) and fed.classes:
                arrays["label_counts"] = fed.label_counts()
            if isinstance(fed, HasClientTraits):
                for name, values in fed.traits().items():
                    arrays[f"trait/{name}"] = np.asarray(values)
        members = fed.members if isinstance(fed, HasMembers) else None
        if members is not None and members[-1] >= fed.clients:  # some clients have left
            arrays["members"] = np.asarray(members)
        return arrays


def _personal_names(part: Personal, oracle: Oracle) -> tuple[str, ...]:
    """Return the names of the tensors that stay with each client, or raise."""
    if oracle.module is None:
        raise IncompatibleParts(
            "personal layers need a model with modules", "leave personal out"
        )
    name = type(part).__name__
    layout = oracle.layout
    names = tuple(sorted(part.names(oracle.module)))
    known = set(oracle.module.state_dict())
    for entry in names:
        if entry not in known:
            raise IncompatibleParts(
                f"{name}: the model has no entry {entry!r}", suggest(entry, known)
            )
    if len(layout.positions(names)) == 0:
        raise IncompatibleParts(
            f"{name}: no entry of the model would stay with clients",
            "leave personal out",
        )
    if {entry.name for entry in layout.parameters} <= set(names):
        raise IncompatibleParts(
            f"{name}: every trained parameter would stay with its client",
            "share some of them",
        )
    return names


def fit(parts: engine.Parts, setting: Setting) -> None:
    """Raise if parts do not fit the federation or each other; names the slot."""
    for name, part in parts.chosen():
        with errors_at(name):
            part.fit(setting)
    for index, attack in enumerate(parts.attacks):
        with errors_at("attacks", str(index)):
            attack.fit(setting)
    parts.fit_each_other(setting)


@dataclass(frozen=True)
class Prepared:
    """A composition with gradient oracle and plan, ready to begin or to resume."""

    composition: Composition
    oracle: Oracle
    plan: engine.Plan

    @property
    def local(self) -> LocalWork:
        """The local work of every client."""
        return LocalWork(self.oracle, self.plan.parts.solver, self.wire)

    @property
    def wire(self) -> engine.Wire:
        """How updates travel, and which entries of a model stay with each client."""
        return self.composition.wire(self.oracle)

    def facts(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the ledger's facts about the run: values and arrays by name."""
        meta, arrays = self.composition.facts()
        meta["trainable"] = self.oracle.layout.trainable
        meta[TENSORS] = layout_text(self.oracle.layout)
        if isinstance(self.oracle, KnowsSampleForm):
            meta[SAMPLE_FORM] = self.oracle.sample_form
        if CODE in meta:
            meta[LAYOUT] = layout_hash(self.oracle.layout)
        if self.oracle.frozen:
            meta["frozen"] = self.oracle.frozen
        if self.wire.personal is not None:
            arrays["personal"] = self.wire.personal.numpy()
        return meta, arrays


def check(composition: Composition) -> engine.Plan:
    """Return the engine's plan; raises for misfits. Measures nothing on the data."""
    return composition.plan(_bound(composition))


def _bound(composition: Composition) -> Oracle:
    """Return the gradient oracle of the task on the clients' data."""
    with errors_at("task"):
        return composition.task.bind(composition.federation, composition.backend.device)


def prepare(composition: Composition) -> Prepared:
    """Bind the task to the data and make the engine's plan; raises for misfits."""
    oracle = _bound(composition)
    if composition.curvature is None:
        composition = composition.with_curvature(oracle)
    return Prepared(composition, oracle, composition.plan(oracle))


def _shares(federation: FederationLike) -> Floats:
    """Return p_ij of the similarity graph; clients on nodes send their messages."""
    from poise.graph import SimilarityGraph, similarity

    if isinstance(federation, SendsMessages):
        return SimilarityGraph(federation.messages()).shares
    return similarity(cast(ReadableFederation, federation)).shares


def seeded(parts: engine.Parts, seed: int) -> engine.Parts:
    """Return the parts with a server whose random draws depend on the run's seed."""
    if not isinstance(parts.server, Seeded):
        return parts
    return replace(parts, server=parts.server.seeded(seed))


def _metric_hint(name: str, known: Collection[str]) -> str:
    """Return how to get a metric that the task lacks."""
    base = base_name(name)
    if base in NAMED and f"client_{base}" not in known:
        return f"add {base!r} to the metrics of the task"
    return suggest(name, known)
