"""Compose a run, begin it, take it up again."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tomli_w
import torch

from poise import attacks as _attacks  # noqa: F401 - parts are known by name once their module is loaded
from poise import engine
from poise import solvers as _solvers  # noqa: F401
from poise._version import __version__
from poise.backends import Local
from poise.clocks import Synchronous
from poise.core.errors import IncompatibleParts, InvalidOption, PoiseError, require, suggest
from poise.core.history import History
from poise.core.memory import Memories
from poise.core.parts import build, describe, is_part
from poise.core.protocols import Oracle
from poise.core.threads import one_thread
from poise.core.types import Record, Setting
from poise.ledger.models import Keep
from poise.ledger.recovery import reopen
from poise.ledger.retention import RULES
from poise.ledger.run import Run, open_run
from poise.ledger.store import EXPERIMENT, Ledger
from poise.samplers import Full
from poise.servers import Add
from poise.weightings import Proportional

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
        require(self.personal in (None, "batchnorm"), f"personal = {self.personal!r}", "known: batchnorm")

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
        return Setting(fed.clients, fed.sizes, fed.importance, oracle.batches, fed.on_demand)

    def plan(self, oracle: Oracle) -> engine.Plan:
        """The engine's orders; raises where the parts do not fit."""
        setting = self.setting(oracle)
        self.parts.fit(setting)
        return engine.Plan(
            self.parts, setting, self.seed, self.rounds, self.time, self.evaluate_every,
            self._metrics(oracle), self.bad_updates == "drop",
        )  # fmt: skip

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
        fallback = set() if self.federation.on_demand else {"train_loss"} & known
        return frozenset((held_out or fallback) | set(self.metrics))

    def table(self) -> dict[str, Any]:
        """The experiment file's tables; ``data`` or ``task`` is absent where Python objects were given."""
        named = {"data": self.federation.spec, "task": self.task.spec}
        slots = {s: describe(getattr(self.parts, s)) for s in ("solver", "sampler", "clock", "weighting", "server")}
        run = {
            "rounds": self.rounds, "time": self.time, "seeds": [self.seed], "evaluate_every": self.evaluate_every,
            "metrics": list(self.metrics), "keep": self.keep, "bad_updates": self.bad_updates,
            "backend": describe(self.backend), "personal": self.personal,
        }  # fmt: skip
        attacks = {"attacks": [describe(a) for a in self.parts.attacks]} if self.parts.attacks else {}
        kept = {k: v for k, v in run.items() if v is not None}
        return {**{k: v for k, v in named.items() if v is not None}, **slots, **attacks, "run": kept}

    def facts(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """What the ledger keeps about the federation."""
        fed = self.federation
        meta = {
            "poise": __version__, "seed": self.seed, "clients": fed.clients, "keep": self.keep,
            "experiment": tomli_w.dumps(self.table()), "status": "running",
        }  # fmt: skip
        arrays: dict[str, np.ndarray] = {}
        if fed.clients <= TABLE_LIMIT:
            arrays = {"sizes": np.asarray(fed.sizes), "importance": np.asarray(fed.importance)}
            if getattr(fed, "classes", 0):
                arrays["label_counts"] = fed.label_counts()
        if hasattr(fed, "digest"):
            meta["federation"] = fed.digest()
        return meta, arrays


def train(
    federation: Any, task: Any, solver: Any, sampler: Any = None, clock: Any = None, weighting: Any = None,
    server: Any = None, rounds: int | None = None, time: float | None = None, seed: int = 0, evaluate_every: int = 1,
    backend: Any = "local", out: str | Path | None = None, attacks: Iterable[Any] = (),
    callbacks: Iterable[Callable[[Record], None]] = (), metrics: Iterable[str] = (), keep: Keep = "last",
    bad_updates: Literal["stop", "drop"] = "stop", stop: Callable[[], bool] = lambda: False,
    personal: Literal["batchnorm"] | None = None,
) -> Run:  # fmt: skip
    """Train one model on a federation; every slot takes a part.

    Args:
        federation: who owns what (`poise.federation`, `poise.quadratics`).
        task: what is learned (`poise.task`, `poise.Task`).
        solver: what each client does.
        sampler: who works; everyone by default.
        clock: when it counts; synchronous by default.
        weighting: how much each counts; proportional by default.
        server: how it is applied; added by default.
        rounds: number of aggregations (100 where neither this nor ``time`` is given).
        time: budget of simulated time.
        seed: one seed, one run.
        evaluate_every: measure after every so many aggregations, and after the last.
        backend: where work is executed, by name or as a part.
        out: run folder; None keeps the run in memory.
        attacks: what dishonest clients send instead.
        callbacks: called with the record of each aggregation.
        metrics: more to measure than the held-out metrics, e.g. ``"client_loss"``.
        keep: which models stay: ``"all"``, ``"unlearnable"``, ``"last"``.
        bad_updates: ``"stop"`` at an update that is not finite, or ``"drop"`` it and go on.
        stop: asked before each round; true ends the run cleanly.
        personal: ``"batchnorm"`` keeps batch-norm parameters and statistics with each client (FedBN).
    """
    parts = engine.Parts(
        _slot("solver", solver), _slot("sampler", sampler or Full()), _slot("clock", clock or Synchronous()),
        _slot("weighting", weighting or Proportional()), _slot("server", server or Add()),
        tuple(_slot("attack", a) for a in attacks),
    )  # fmt: skip
    composition = Composition(
        federation, task, parts, 100 if rounds is None and time is None else rounds, time, seed, evaluate_every,
        tuple(metrics), keep, bad_updates, _backend(backend), personal,
    )  # fmt: skip
    return begin(composition, out, callbacks, stop)


def prepare(composition: Composition) -> tuple[Oracle, engine.Plan]:
    """The gradient oracle of a composition and the engine's orders; raises where something does not fit."""
    oracle = composition.task.bind(composition.federation, composition.backend.device)
    return oracle, composition.plan(oracle)


def begin(
    composition: Composition, out: str | Path | None = None, callbacks: Iterable[Callable[[Record], None]] = (),
    stop: Callable[[], bool] = lambda: False, prepared: tuple[Oracle, engine.Plan] | None = None,
) -> Run:  # fmt: skip
    """Begin a composed run in a new folder, or in memory."""
    oracle, plan = prepared or prepare(composition)
    meta, arrays = composition.facts()
    ledger = Ledger.create(Path(out) if out is not None else None, meta, arrays, meta["experiment"])
    try:
        state = engine.initial(oracle, plan)
        ledger.start(state.theta)
    except BaseException:
        ledger.close()
        raise
    return _go(composition, plan, oracle, ledger, state, callbacks, stop, History())


def take_up(
    composition: Composition, path: Path, callbacks: Iterable[Callable[[Record], None]] = (),
    stop: Callable[[], bool] = lambda: False,
) -> Run:  # fmt: skip
    """Go on with a run at its last good round; it ends bit for bit as if it had never stopped."""
    oracle, plan = prepare(composition)
    meta, arrays = composition.facts()
    ledger, restart = reopen(path, meta, arrays)
    try:
        recorded = ledger.meta()
        _refuse_another(recorded["experiment"], composition, path)
        state = engine.initial(oracle, plan)
        if restart.theta is None or "initial" not in recorded:
            ledger.start(state.theta)
        if restart.theta is not None:
            place = state.theta
            if restart.theta.shape != place.shape:
                raise IncompatibleParts(
                    f"{path}: the task has {len(place)} parameters, the model of the run {len(restart.theta)}",
                    "give the task that the run began with",
                )
            server = {k: v.to(place) for k, v in restart.server.items()}
            state = engine.State(
                restart.index, restart.theta.to(place), {k: v for k, v in server.items() if "/" not in k},
                restart.sky, {v: m.to(place) for v, m in restart.versions.items()}, Memories.of(server, restart.own),
            )  # fmt: skip
        if meta["experiment"] != recorded["experiment"]:
            ledger.set_experiment(meta["experiment"])
        ledger.event("resumed")
        ledger.set("status", "running")
    except BaseException:
        ledger.close()
        raise
    return _go(composition, plan, oracle, ledger, state, callbacks, stop, History.of(restart.records))


def _go(
    composition: Composition, plan: engine.Plan, oracle: Oracle, ledger: Ledger, state: engine.State,
    callbacks: Iterable[Callable[[Record], None]], stop: Callable[[], bool], history: History,
) -> Run:  # fmt: skip
    """Run the engine and leave the ledger in a known state, whatever happens."""
    observers = tuple(callbacks)
    sizes = composition.federation.sizes
    try:
        personal = composition.personal_positions(oracle)
        backend = composition.backend.open(oracle, composition.parts.solver, sizes, composition.seed, personal)
    except BaseException:
        ledger.close()
        raise

    def after_round(record: Record) -> None:
        for observer in observers:
            observer(record)

    try:
        with one_thread():
            end = engine.run(state, plan, oracle, backend, ledger, history, after_round, stop)
        whole = composition.rounds is not None and end.index >= composition.rounds
        ledger.set("status", "done" if whole or not stop() else "stopped")
    except PoiseError as error:
        _note_failure(ledger, error)
        ledger.close()
        raise
    except BaseException:
        ledger.close()
        raise
    finally:
        backend.close()
    if ledger.path is None:
        return Run(ledger)
    ledger.close()
    return open_run(ledger.path)


MAY_CHANGE = ("rounds", "time", "keep", "backend")
"""What a run may go on with differently from how it began."""


def _refuse_another(recorded: str, composition: Composition, path: Path) -> None:
    """A run goes on as what it began as: half of one experiment and half of another is neither."""
    began, now = tomllib.loads(recorded), tomllib.loads(tomli_w.dumps(composition.table()))
    for table in (began, now):
        table["run"] = {k: v for k, v in table["run"].items() if k not in MAY_CHANGE}
    for name in began.keys() & now.keys():
        if began[name] != now[name]:
            raise IncompatibleParts(
                f"{path / EXPERIMENT}: [{name}] is not what the run began with: {began[name]}",
                "put it back, or begin a new run",
            )


def _note_failure(ledger: Ledger, error: PoiseError) -> None:
    """Write down why a run failed, where the disk still takes it."""
    try:
        ledger.event(f"failed: {error.message}")
        ledger.set("status", "failed")
    except PoiseError:
        return


def _slot(slot: str, given: Any) -> Any:
    """A part of this slot; a part of another one is refused by name."""
    if is_part(given) and given.slot != slot:
        raise IncompatibleParts(f"{type(given).__name__} is a {given.slot}, not a {slot}")
    if isinstance(given, type):
        raise InvalidOption(f"{slot} is the class {given.__name__}", f"make one: {given.__name__}(…)")
    if isinstance(given, str):
        return build(slot, {"name": given}, slot)
    return given


def _backend(given: Any) -> Any:
    return build("backend", {"name": given}, "backend") if isinstance(given, str) else given


__all__ = ["EXPERIMENT", "Composition", "begin", "prepare", "take_up", "train"]
