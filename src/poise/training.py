"""Compose a run, begin it, take it up again."""

from __future__ import annotations

import tomllib
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tomli_w
import torch

from poise import attacks as _attacks  # noqa: F401 - parts are known by name once their module is loaded
from poise import engine
from poise import solvers as _solvers  # noqa: F401
from poise.auditing.live import Action, LiveAudit
from poise.clocks import Synchronous
from poise.composition import Composition, slot
from poise.core.errors import IncompatibleParts, PoiseError, require
from poise.core.gradients import Gradients
from poise.core.history import History
from poise.core.memory import Memories
from poise.core.numerics import HINT, mkl_mode, warn_if_unfixed
from poise.core.protocols import Oracle
from poise.core.threads import one_thread
from poise.core.types import Record
from poise.ledger import models
from poise.ledger.models import Keep, content_hash
from poise.ledger.recovery import reopen
from poise.ledger.run import Run, open_run
from poise.ledger.store import EXPERIMENT, Ledger
from poise.samplers import Full
from poise.servers import Add
from poise.unlearning.budget import Budget
from poise.weightings import Proportional


def train(
    federation: Any, task: Any, solver: Any, sampler: Any = None, clock: Any = None, weighting: Any = None,
    server: Any = None, rounds: int | None = None, time: float | None = None, seed: int = 0, evaluate_every: int = 1,
    backend: Any = "local", out: str | Path | None = None, attacks: Iterable[Any] = (),
    callbacks: Iterable[Callable[[Record], None]] = (), metrics: Iterable[str] = (), keep: Keep = "last",
    bad_updates: Literal["stop", "drop"] = "stop", stop: Callable[[], bool] = lambda: False,
    personal: Literal["batchnorm"] | None = None, start: Any = None, unlearning: Budget | None = None,
    keep_updates: bool = False, audit: Action | None = None,
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
        start: the model to begin with, (d,); the task's own initial model by default.
        unlearning: what requests to forget will be promised; ``keep="unlearnable"`` keeps models for it.
        keep_updates: keep every update of every round, for re-aggregation without some clients (``fed-accum``).
        audit: look for free-riders after every round, and ``"warn"``, or ``"quarantine"`` them: weight 0, the others as
            much in total as all had. Both are events of the run and warnings, never silent.
    """
    composition = composed(
        federation, task, solver, sampler, clock, weighting, server, rounds, time, seed, evaluate_every, backend,
        attacks, metrics, keep, bad_updates, personal, unlearning, keep_updates, audit,
    )  # fmt: skip
    return begin(composition, out, callbacks, stop, start=start)


def composed(
    federation: Any, task: Any, solver: Any, sampler: Any = None, clock: Any = None, weighting: Any = None,
    server: Any = None, rounds: int | None = None, time: float | None = None, seed: int = 0, evaluate_every: int = 1,
    backend: Any = "local", attacks: Iterable[Any] = (), metrics: Iterable[str] = (), keep: Keep = "last",
    bad_updates: Literal["stop", "drop"] = "stop", personal: Literal["batchnorm"] | None = None,
    unlearning: Budget | None = None, keep_updates: bool = False, audit: Action | None = None,
) -> Composition:  # fmt: skip
    """The composition that `train` runs: every slot filled, every value checked."""
    require(hasattr(federation, "importance"), f"{federation!r} is not a federation", "make one: poise.federation(…)")
    require(hasattr(task, "bind"), f"{task!r} is not a task", "make one: poise.task(…)")
    parts = engine.Parts(
        slot("solver", solver), slot("sampler", sampler or Full()), slot("clock", clock or Synchronous()),
        slot("weighting", weighting or Proportional()), slot("server", server or Add()),
        tuple(slot("attack", a) for a in attacks),
    )  # fmt: skip
    return Composition(
        federation, task, parts, 100 if rounds is None and time is None else rounds, time, seed, evaluate_every,
        tuple(metrics), keep, bad_updates, slot("backend", backend), personal,
        unlearning=unlearning, keep_updates=keep_updates, audit=audit,
    )  # fmt: skip


def prepare(composition: Composition) -> tuple[Oracle, engine.Plan]:
    """The gradient oracle of a composition and the engine's orders; raises where something does not fit."""
    oracle = composition.task.bind(composition.federation, composition.backend.device)
    return oracle, composition.plan(oracle)


def begin(
    composition: Composition, out: str | Path | None = None, callbacks: Iterable[Callable[[Record], None]] = (),
    stop: Callable[[], bool] = lambda: False, prepared: tuple[Oracle, engine.Plan] | None = None, start: Any = None,
) -> Run:  # fmt: skip
    """Begin a composed run in a new folder, or in memory; from the task's own initial model, or from ``start``."""
    warn_if_unfixed()
    oracle, plan = prepared or prepare(composition)
    state = engine.initial(oracle, plan)
    if start is not None:
        state = _starting(state, start)
        composition = replace(composition, start=content_hash({"theta": state.theta}))
    meta, arrays = composition.facts()
    meta["trainable"] = oracle.layout.trainable
    ledger = Ledger.create(Path(out) if out is not None else None, meta, arrays, meta["experiment"])
    try:
        ledger.start(state.theta)
    except BaseException:
        ledger.close()
        raise
    return _go(composition, plan, oracle, ledger, state, callbacks, stop, _history(composition, plan, oracle))


def _starting(state: engine.State, start: Any) -> engine.State:
    """The state of a run that begins with this model."""
    given = torch.as_tensor(np.asarray(start))
    fits = given.shape == state.theta.shape and given.is_floating_point() and bool(torch.isfinite(given).all())
    require(fits, f"start has shape {tuple(given.shape)}, the task's models ({len(state.theta)},)", "finite numbers")
    return replace(state, theta=given.to(state.theta).clone())


def take_up(
    composition: Composition, path: Path, callbacks: Iterable[Callable[[Record], None]] = (),
    stop: Callable[[], bool] = lambda: False,
) -> Run:  # fmt: skip
    """Go on with a run at its last good round; it ends bit for bit as if it had never stopped."""
    oracle, plan = prepare(composition)
    meta, arrays = composition.facts()
    meta["trainable"] = oracle.layout.trainable
    ledger, restart = reopen(path, meta, arrays)
    try:
        recorded = ledger.meta()
        _refuse_another(recorded["experiment"], composition, path)
        state = engine.initial(oracle, plan)
        if composition.start is not None and restart.theta is None:
            state = _starting(state, ledger.store.get(models.name(0), composition.start)["theta"])
        elif restart.theta is None or "initial" not in recorded:
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
        if not (recorded["status"] == "done" and _ended(composition, state)):  # else the ledger stays as it is
            ledger.event("resumed" + _other_numerics(recorded))
            ledger.set("status", "running")
    except BaseException:
        ledger.close()
        raise
    history = _history(composition, plan, oracle)
    history.resume(restart.records, restart.own, restart.server)
    return _go(composition, plan, oracle, ledger, state, callbacks, stop, history)


def _history(composition: Composition, plan: engine.Plan, oracle: Oracle) -> History:
    """An empty history that keeps what the sampler asks for and counts sensitivities as the declared budget does.

    Where there is an audit, it watches.
    """
    sampler, gradients, audit = plan.parts.sampler, None, composition.audit
    if "gradients" in sampler.needs:
        gradients = Gradients(plan.setting.clients, sampler.measure)  # type: ignore[attr-defined]
    watch = None if audit is None else LiveAudit(audit, oracle.layout.trainable)
    return History(psi=composition.tracker(), gradients=gradients, watch=watch)


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

    told = set(ledger.events())

    def tell() -> None:
        for item in getattr(history.watch, "news", ()):
            if item not in told:
                told.add(item)
                ledger.event(item)
                warnings.warn(item, stacklevel=2)

    def after_round(record: Record) -> None:
        tell()
        for observer in observers:
            observer(record)

    try:
        tell()  # what a process that died could not say any more
        with one_thread():
            end = engine.run(state, plan, oracle, backend, ledger, history, after_round, stop)
        ledger.set("status", "done" if _ended(composition, end) or not stop() else "stopped")
    except PoiseError as error:
        _note_failure(ledger, error)
        ledger.close()
        raise
    except BaseException:
        ledger.close()
        raise
    finally:
        backend.close()
        history.close()
    if ledger.path is None:
        return Run(ledger)
    ledger.close()
    return open_run(ledger.path)


def _ended(composition: Composition, state: engine.State) -> bool:
    """Whether all rounds that were planned are done."""
    return composition.rounds is not None and state.index >= composition.rounds


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


def _other_numerics(recorded: dict[str, str]) -> str:
    """A remark, where the run began in a process whose products may round otherwise than in this one."""
    began = recorded.get("mkl", "")
    if began == mkl_mode():
        return ""
    remark = f"the run began with MKL's reproducibility {began or 'unknown'!r}, this process has {mkl_mode()!r}"
    warnings.warn(f"{remark}: it may not end in the same bits ({HINT})", stacklevel=4)
    return f"; {remark}"


def _note_failure(ledger: Ledger, error: PoiseError) -> None:
    """Write down why a run failed, where the disk still takes it."""
    try:
        ledger.event(f"failed: {error.message}")
        ledger.set("status", "failed")
    except PoiseError:
        return


__all__ = ["begin", "composed", "prepare", "take_up", "train"]
