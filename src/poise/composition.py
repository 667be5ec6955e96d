"""A composition: everything that defines a run, checked before anything is computed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import tomli_w
import torch

from poise import engine
from poise._version import __version__
from poise.auditing.gauge import AuditGauge
from poise.auditing.live import ACTIONS, Action
from poise.backends import Local
from poise.core.errors import IncompatibleParts, InvalidOption, require, suggest
from poise.core.memory import memory_of
from poise.core.numerics import mkl_mode
from poise.core.parts import build, describe, is_part, parts_of
from poise.core.protocols import Gauge, Oracle
from poise.core.sensitivity import Moved, Psi
from poise.core.types import Setting
from poise.core.vectors import Layout
from poise.ledger.models import Keep
from poise.ledger.retention import RULES
from poise.unlearning.budget import Budget

OF_CLIENTS = ("client_", "train_", "own_")
"""How the names of metrics begin that are measured client by client."""

TABLE_LIMIT = 10_000  # clients beyond which a run keeps no table of them


@dataclass(frozen=True)
class Composition:
    """Everything that defines a run: data, task, a choice for each slot, and a budget."""

    federation: Any
    task: Any
    parts: engine.Parts
    rounds: int | None = None
    time: float | None = None
    seed: int = 0
    evaluate_every: int = 1
    metrics: tuple[str, ...] = ()
    keep: Keep = "last"
    bad_updates: Literal["stop", "drop"] = "stop"
    backend: Any = Local()
    personal: Literal["batchnorm"] | None = None
    start: str | None = None  # the hash of the model it begins with, where that is not the task's own
    unlearning: Budget | None = None  # what requests to forget will be promised
    keep_updates: bool = False
    audit: Action | None = None

    def __post_init__(self) -> None:
        require(self.rounds is not None or self.time is not None, "the run has no end", "give rounds= or time=")
        for name, least in (("rounds", 1), ("evaluate_every", 1), ("seed", 0)):
            value = getattr(self, name)
            fits = type(value) is int or isinstance(value, np.integer) or (value is None and name == "rounds")
            require(fits, f"{name} must be a whole number, not {value!r}")
            require(value is None or value >= least, f"{name} must be at least {least}, not {value}")
        timed = isinstance(self.time, int | float | np.number) and not isinstance(self.time, bool)
        require(timed or self.time is None, f"time must be a number, not {self.time!r}")
        require(self.time is None or 0 < self.time < np.inf, f"time must be above 0 and finite, not {self.time}")
        require(self.keep in RULES, f"keep = {self.keep!r} is not a rule", suggest(str(self.keep), RULES))
        require(self.bad_updates in ("stop", "drop"), f"bad_updates = {self.bad_updates!r}", "known: drop, stop")
        require(isinstance(self.keep_updates, bool), f"keep_updates must be true or false, not {self.keep_updates!r}")
        require(self.personal in (None, "batchnorm"), f"personal = {self.personal!r}", "known: batchnorm")
        require(self.audit in (None, *ACTIONS), f"audit = {self.audit!r}", f"known: {', '.join(ACTIONS)}")

    def personal_positions(self, oracle: Any) -> torch.Tensor | None:
        """Where the entries lie that stay with each client."""
        if self.personal is None:
            return None
        if self.federation.on_demand or not hasattr(oracle, "norms"):
            raise IncompatibleParts(
                "personal layers need clients that come back, and a model with batch norm", "leave personal out"
            )
        positions: torch.Tensor = oracle.norms()
        return positions

    def setting(self, oracle: Oracle) -> Setting:
        """What the parts may know of the federation."""
        fed = self.federation
        few = not fed.on_demand and fed.clients <= TABLE_LIMIT
        majority = fed.label_counts().argmax(axis=1) if few and getattr(fed, "classes", 0) else None
        similar = None if fed.on_demand or fed.clients < 2 else lambda: _shares(fed)
        return Setting(fed.clients, fed.sizes, fed.importance, oracle.batches, fed.on_demand, majority, similar)

    def plan(self, oracle: Oracle) -> engine.Plan:
        """The engine's orders; raises where the parts do not fit."""
        setting = self.setting(oracle)
        self.parts.fit(setting)
        return engine.Plan(
            seeded(self.parts, self.seed), setting, self.seed, self.rounds, self.time, self.evaluate_every,
            self._metrics(oracle), self.bad_updates == "drop", self.gauges(oracle.layout), self.keep_updates,
            self.personal is not None,
        )  # fmt: skip

    def gauges(self, layout: Layout) -> tuple[Gauge, ...]:
        """What is read of every update."""
        asked = self.unlearning
        ends = asked is not None and asked.contraction(self.parts.solver) == 1  # what fades may come back
        moved = Moved(getattr(self.parts.server, "lr", 1.0), asked.limit if asked and ends else np.inf)
        adds = getattr(self.parts.server, "name", "") == "add" and memory_of(self.parts.solver) is None
        return AuditGauge(layout, self.seed, received=not adds), moved  # the first takes what both need in its pass

    def tracker(self) -> Psi:
        """An empty count of sensitivities, as the budget asked for counts them."""
        return (self.unlearning or Budget()).tracker(self.parts.solver, self.parts.server, self.federation.importance)

    @property
    def _budget(self) -> Budget | None:
        """The budget asked for, or the default where models are kept for one."""
        return self.unlearning or (Budget() if self.keep == "unlearnable" else None)

    def _metrics(self, oracle: Oracle) -> frozenset[str]:
        """Held-out metrics (or the training loss where nothing is held out) and those asked for."""
        known = oracle.metrics
        for name in self.metrics:
            if name not in known:
                raise InvalidOption(f"unknown metric {name!r}", suggest(name, known))
            if self.federation.on_demand and name.startswith(OF_CLIENTS):
                raise IncompatibleParts(f"{name} needs all clients, but they are made on demand", "leave it out")
        held_out = {name for name in known if not name.startswith(OF_CLIENTS)}
        if self.personal is not None:  # there is no one model that held-out data could be shown to
            for name in held_out & set(self.metrics):
                raise IncompatibleParts(
                    f"{name} is of one model, but clients have layers of their own", f"use own_{name}"
                )
            held_out = {name for name in known if name.startswith("own_")}
        unasked = not self.federation.on_demand and getattr(self.federation, "measured", True)
        fallback = {"train_loss"} & known if unasked else set()
        return frozenset((held_out or fallback) | set(self.metrics))

    def table(self) -> dict[str, Any]:
        """The experiment file's tables; ``data`` or ``task`` is absent where Python objects were given."""
        named = {"data": self.federation.spec, "task": self.task.spec}
        slots = {s: describe(getattr(self.parts, s)) for s in ("solver", "sampler", "clock", "weighting", "server")}
        run = {
            "rounds": self.rounds, "time": self.time, "seeds": [self.seed], "evaluate_every": self.evaluate_every,
            "metrics": list(self.metrics), "keep": self.keep, "bad_updates": self.bad_updates,
            "backend": describe(self.backend), "personal": self.personal, "start": self.start,
            "keep_updates": self.keep_updates or None, "audit": self.audit,
        }  # fmt: skip
        attacks = {"attacks": [describe(a) for a in self.parts.attacks]} if self.parts.attacks else {}
        kept = {k: v for k, v in run.items() if v is not None}
        budget = {} if self.unlearning is None else {"unlearning": self.unlearning.table()}
        return {**{k: v for k, v in named.items() if v is not None}, **slots, **attacks, **budget, "run": kept}

    def facts(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """What the ledger keeps about the federation."""
        fed = self.federation
        meta = {
            "poise": __version__, "seed": self.seed, "clients": fed.clients, "keep": self.keep,
            "experiment": tomli_w.dumps(self.table()), "status": "running", "mkl": mkl_mode(),
        }  # fmt: skip
        arrays: dict[str, np.ndarray] = {}
        if fed.clients <= TABLE_LIMIT:
            arrays = {"sizes": np.asarray(fed.sizes), "importance": np.asarray(fed.importance)}
            if getattr(fed, "classes", 0):
                arrays["label_counts"] = fed.label_counts()
            traits = fed.traits() if hasattr(fed, "traits") else {}
            arrays |= {f"trait/{name}": np.asarray(values) for name, values in traits.items()}
        members = getattr(fed, "members", None)
        if members is not None and members[-1] >= fed.clients:  # some have left, the others moved up
            arrays["members"] = np.asarray(members)
        if (budget := self._budget) is not None:
            meta |= {"limit": budget.limit, "fading": budget.contraction(self.parts.solver)}
            meta["rate"] = getattr(self.parts.server, "lr", 1.0)
            if budget.participation == "optimistic":
                arrays["optimism"] = np.asarray(fed.importance)
        if self.keep_updates:
            meta["keep_updates"] = True
        if hasattr(fed, "digest"):
            meta["federation"] = fed.digest()
        return meta, arrays


def _shares(federation: Any) -> Any:
    """p_ij of the federation's similarity graph; clients on nodes of their own tell their messages."""
    from poise.graph import SimilarityGraph, similarity

    told = getattr(federation, "messages", None)
    return (similarity(federation) if told is None else SimilarityGraph(told())).shares


def seeded(parts: engine.Parts, seed: int) -> engine.Parts:
    """The parts with the draws of a server that draws named by the run's seed."""
    bind = getattr(parts.server, "seeded", None)
    return parts if bind is None else replace(parts, server=bind(seed))


def slot(name: str, given: Any) -> Any:
    """A part of this slot; a part of another one is refused by name."""
    if is_part(given) and given.slot != name:
        raise IncompatibleParts(f"{type(given).__name__} is a {given.slot}, not a {name}")
    if isinstance(given, type):
        raise InvalidOption(f"{name} is the class {given.__name__}", f"make one: {given.__name__}(…)")
    if isinstance(given, str):
        return build(name, {"name": given}, name)
    if not callable(getattr(given, "fit", None)) and name != "backend":
        raise InvalidOption(f"{given!r} is not a {name}", f"known: {', '.join(parts_of(name))}")
    return given
