"""Begin a run, and resume it: the ledger, the engine's first state, and the rounds between them."""

from __future__ import annotations

import tomllib
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
import torch
from numpy.typing import ArrayLike

from poise import engine
from poise.auditing.live import LiveAudit
from poise.config.experiment import migrated
from poise.config.run_options import AuditAction, BadUpdates, Keep, RunOptions
from poise.core.algorithm_state import AlgorithmState
from poise.core.errors import IncompatibleParts, PoiseError, require
from poise.core.federations import FederationLike, TaskLike
from poise.core.gradients import Gradients
from poise.core.history import History
from poise.core.numerics import HINT, mkl_mode, warn_if_not_reproducible
from poise.core.protocols import (
    Aggregator,
    Attack,
    Channel,
    Clock,
    Personal,
    Sampler,
    Server,
    Solver,
    Weighting,
)
from poise.core.slots import DEFAULTS, RUN_SLOTS
from poise.core.threads import one_thread
from poise.core.types import Record
from poise.engine.local_work import BackendPart
from poise.ledger import models
from poise.ledger.models import content_hash
from poise.ledger.recovery import Restart, reopen
from poise.ledger.run import Run, open_run
from poise.ledger.store import Ledger
from poise.ledger.summary import REQUEST
from poise.privacy.budget import Budget
from poise.training.composition import Composition, Prepared, prepare
from poise.training.experiment_files import compose, recorded
from poise.training.slots import composed, slot

Observer = Callable[[Record], None]


def never() -> bool:
    """The usual answer to "stop now?"."""
    return False


def train(
    federation: FederationLike,
    task: TaskLike,
    solver: Solver | str,
    sampler: Sampler | str | None = None,
    clock: Clock | str | None = None,
    weighting: Weighting | str | None = None,
    server: Server | str | None = None,
    rounds: int | None = None,
    time: float | None = None,
    seed: int = 0,
    evaluate_every: int = 1,
    backend: Any = "local",
    out: str | Path | None = None,
    attacks: Iterable[Attack | str] = (),
    callbacks: Iterable[Observer] = (),
    metrics: Iterable[str] = (),
    keep: Keep = "last",
    bad_updates: BadUpdates = "stop",
    stop: Callable[[], bool] = never,
    personal: Personal | str | None = None,
    start: ArrayLike | torch.Tensor | None = None,
    unlearning: Budget | None = None,
    keep_updates: bool = False,
    audit: AuditAction | None = None,
    aggregator: Aggregator | str | None = None,
    channel: Channel | str | None = None,
) -> Run:
    """Train one model on a federation; every slot takes a part.

    Args:
        federation: who owns what (`poise.federation`, `poise.quadratics`).
        task: what is learned (`poise.task`, `poise.Task`).
        solver: what each client does.
        sampler: who works; everyone by default.
        clock: when it counts; synchronous by default.
        weighting: how much each counts; proportional by default.
        server: how it is applied; added by default.
        rounds: number of aggregations (100 in Python where neither this nor ``time`` is given).
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
        personal: which parameters stay with each client; none by default.
        start: the model to begin with, (d,); the task's own initial model by default.
        unlearning: what requests to forget will be promised; ``keep="unlearnable"`` keeps models
            for it.
        keep_updates: keep every update of every round, for re-aggregation without some clients
            (``fed-accum``).
        audit: look for free-riders after every round, and ``"warn"``, or ``"quarantine"`` them:
            weight 0, the others as much in total as all had. Both are events of the run and
            warnings, never silent.
        aggregator: how weighted updates become one direction; their weighted sum by default.
        channel: what happens to an update on its way to the server; nothing by default.
    """
    options = RunOptions(
        rounds=rounds,
        time=time,
        seed=seed,
        evaluate_every=evaluate_every,
        metrics=tuple(metrics),
        keep=keep,
        bad_updates=bad_updates,
        backend=backend,
        keep_updates=keep_updates,
        audit=audit,
    )
    chosen = {
        "solver": solver,
        "sampler": sampler,
        "clock": clock,
        "weighting": weighting,
        "aggregator": aggregator,
        "channel": channel,
        "server": server,
        "personal": personal,
    }
    composition = composed(
        federation, task, chosen, options, attacks=attacks, unlearning=unlearning
    )
    return begin(composition, out, callbacks=callbacks, stop=stop, start=start)


def begin(
    composition: Composition,
    out: str | Path | None = None,
    callbacks: Iterable[Observer] = (),
    stop: Callable[[], bool] = never,
    start: ArrayLike | torch.Tensor | None = None,
) -> Run:
    """Begin a composed run in a new folder, or in memory; from the task's own initial model, or
    from ``start``.
    """
    warn_if_not_reproducible()
    prepared = prepare(composition)
    state = engine.initial(prepared.oracle, prepared.plan)
    if start is not None:
        state = _starting(state, start)
        composition = composition.with_options(start=content_hash({"theta": state.theta}))
        prepared = replace(prepared, composition=composition)
    meta, arrays = prepared.facts()
    ledger = Ledger.create(Path(out) if out is not None else None, meta, arrays, meta["experiment"])
    with _closed_on_error(ledger):
        ledger.start(state.theta)
        return _run_rounds(
            prepared, ledger, state, _history(prepared), Watchers(tuple(callbacks), stop)
        )


def _starting(state: engine.State, start: ArrayLike | torch.Tensor) -> engine.State:
    """The state of a run that begins with this model."""
    given = torch.as_tensor(np.asarray(start))
    finite = given.is_floating_point() and bool(torch.isfinite(given).all())
    fits = given.shape == state.theta.shape and finite
    require(
        fits,
        f"start has shape {tuple(given.shape)}, the task's models ({len(state.theta)},)",
        "finite numbers",
    )
    return replace(state, theta=given.to(state.theta).clone())


def resume(
    path: str | Path,
    federation: FederationLike | None = None,
    task: TaskLike | None = None,
    callbacks: Iterable[Observer] = (),
    stop: Callable[[], bool] = never,
    rounds: int | None = None,
    backend: BackendPart | str | None = None,
) -> Run:
    """Take a run up at its last good round and bring it to its end.

    Args:
        path: the run folder.
        federation: needed where the run was made with data given as Python objects.
        task: likewise for its task.
        callbacks: called with the record of each aggregation.
        stop: asked before each round; true ends the run cleanly.
        rounds: a new number of rounds, to go on after the planned end.
        backend: another backend to go on with; the result does not depend on it.
    """
    folder = Path(path)
    refuse_branch(folder)
    experiment = recorded(folder)
    composition = compose(experiment, experiment.seeds[0], federation, task)
    if rounds is not None:
        composition = composition.with_options(rounds=rounds)
    if backend is not None:
        composition = composition.with_options(backend=slot("backend", backend))
    with experiment.located():
        return resume_run(composition, folder, callbacks, stop)


def refuse_branch(folder: Path, verb: str = "poise unlearn") -> None:
    """Refuse to resume a branch directly: how it ends, and what it guarantees, depends on its
    request.
    """
    if (folder / REQUEST).exists():
        raise IncompatibleParts(
            f"{folder} was made by a request to forget, and ends where that request says",
            f"`{verb}` with the same clients and options finishes it",
        )


def resume_run(
    composition: Composition,
    path: Path,
    callbacks: Iterable[Observer] = (),
    stop: Callable[[], bool] = never,
) -> Run:
    """Go on with a run at its last good round; it ends bit for bit as if it had never stopped."""
    prepared = prepare(composition)
    meta, arrays = prepared.facts()
    ledger, restart = reopen(path, meta, arrays)
    with _closed_on_error(ledger):
        recorded_meta = ledger.meta()
        if recorded_meta.get("frozen", "") != prepared.oracle.frozen:
            raise IncompatibleParts(
                "the frozen parameters of the task are not those that the run began with",
                "give the task that the run began with",
                where=("task",),
            )
        _refuse_another(recorded_meta["experiment"], composition)
        state = _state_at(restart, prepared, ledger)
        if meta["experiment"] != recorded_meta["experiment"]:
            ledger.set_experiment(meta["experiment"])
        personal = {name: values for name, values in arrays.items() if name == "personal"}
        if personal and ledger.array("personal") is None:  # poise 0.1 did not record them
            ledger.add_arrays(personal)
        if not (
            recorded_meta["status"] == "done" and _ended(composition, state)
        ):  # else the ledger stays as it is
            ledger.event("resumed" + _other_numerics(recorded_meta))
            ledger.set("status", "running")
        history = _history(prepared)
        history.resume(restart.records, restart.client_states, restart.server)
        return _run_rounds(prepared, ledger, state, history, Watchers(tuple(callbacks), stop))


def _state_at(restart: Restart, prepared: Prepared, ledger: Ledger) -> engine.State:
    """The state after the last good round; the initial state where no round was recorded."""
    state = engine.initial(prepared.oracle, prepared.plan)
    start = prepared.composition.options.start
    if restart.theta is None:
        if start is not None:
            return _starting(state, ledger.store.get(models.name(0), start)["theta"])
        ledger.start(state.theta)
        return state
    if "initial" not in ledger.meta():
        ledger.start(state.theta)
    like = state.theta
    if restart.theta.shape != like.shape:
        raise IncompatibleParts(
            f"the task has {len(like)} parameters, the model of the run {len(restart.theta)}",
            "give the task that the run began with",
            where=("task",),
        )
    tensors = {name: values.to(like) for name, values in restart.server.items()}
    return engine.State(
        restart.index,
        restart.theta.to(like),
        server={name: values for name, values in tensors.items() if "/" not in name},
        in_flight=restart.in_flight,
        models={version: model.to(like) for version, model in restart.versions.items()},
        algorithm_state=AlgorithmState.of(tensors, restart.client_states),
    )


def _history(prepared: Prepared) -> History:
    """An empty history that keeps what the sampler needs, and counts sensitivities as the declared
    budget does.

    It holds the live audit, where the run has one.
    """
    composition = prepared.composition
    sampler = prepared.plan.parts.sampler
    gradients = None
    if "gradients" in sampler.needs:
        gradients = Gradients(prepared.plan.setting.clients, sampler.measure)  # type: ignore[attr-defined]
    watch = None
    if composition.options.audit is not None:
        watch = LiveAudit(composition.options.audit, prepared.oracle.layout.trainable)
    return History(psi=composition.tracker(), gradients=gradients, watch=watch)


@contextmanager
def _closed_on_error(ledger: Ledger) -> Iterator[None]:
    """Close the ledger where the block raises."""
    try:
        yield
    except BaseException:
        ledger.close()
        raise


@dataclass(frozen=True)
class Watchers:
    """Who is told of every round, and who may end the run."""

    callbacks: tuple[Observer, ...] = ()
    stop: Callable[[], bool] = never


def _run_rounds(
    prepared: Prepared, ledger: Ledger, state: engine.State, history: History, watchers: Watchers
) -> Run:
    """Run the engine to its end, and write into the ledger how the run ended."""
    composition, local = prepared.composition, prepared.local
    backend = composition.backend.open(local, composition.federation, composition.seed)
    announce = _announcer(history, ledger)

    def after_round(record: Record) -> None:
        announce()
        for callback in watchers.callbacks:
            callback(record)

    try:
        announce()  # news that a process which died could not write any more
        with one_thread():
            around = engine.Environment(
                backend, local.wire, ledger, history, engine.Observers(after_round, watchers.stop)
            )
            end = engine.run(state, prepared.plan, around)
        done = _ended(composition, end) or not watchers.stop()
        ledger.set("status", "done" if done else "stopped")
    except PoiseError as error:
        _note_failure(ledger, error)
        raise
    finally:
        backend.close()
        history.close()
    if ledger.path is None:
        return Run(ledger)
    ledger.close()
    return open_run(ledger.path)


def _announcer(history: History, ledger: Ledger) -> Callable[[], None]:
    """A function that writes the audit's news into the ledger, each once, and warns of them."""
    known = set(ledger.events())

    def announce() -> None:
        news = history.watch.news if isinstance(history.watch, LiveAudit) else ()
        for item in news:
            if item not in known:
                known.add(item)
                ledger.event(item)
                warnings.warn(item, stacklevel=2)

    return announce


def _ended(composition: Composition, state: engine.State) -> bool:
    """Whether all planned rounds are done."""
    return composition.rounds is not None and state.index >= composition.rounds


MAY_CHANGE = ("rounds", "time", "keep", "backend")
"""What a run may go on with differently from how it began."""


def _refuse_another(recorded_text: str, composition: Composition) -> None:
    """Refuse to go on with another experiment than the one that the run began with."""
    began = _comparable(tomllib.loads(recorded_text))
    now = _comparable(tomllib.loads(tomli_w.dumps(composition.table())))
    for name in began.keys() & now.keys():
        if began[name] != now[name]:
            raise IncompatibleParts(
                f"[{name}] is not what the run began with: {began[name]}",
                "put it back, or begin a new run",
                where=(name,),
            )


def _comparable(tables: dict[str, Any]) -> dict[str, Any]:
    """The tables of an experiment, with the default of every slot and without what may change."""
    tables = migrated(tables)
    run = {key: value for key, value in tables["run"].items() if key not in MAY_CHANGE}
    empty = {slot: {"name": DEFAULTS[slot]} if slot in DEFAULTS else {} for slot in RUN_SLOTS}
    return {"attacks": [], "unlearning": {}, **empty, **tables, "run": run}


def _other_numerics(recorded: dict[str, str]) -> str:
    """A remark, where the run began in a process whose products may round otherwise than in this
    one.
    """
    began = recorded.get("mkl", "")
    if began == mkl_mode():
        return ""
    remark = (
        f"the run began with MKL's reproducibility {began or 'unknown'!r}, this process has "
        f"{mkl_mode()!r}"
    )
    warnings.warn(f"{remark}: it may not end in the same bits ({HINT})", stacklevel=4)
    return f"; {remark}"


def _note_failure(ledger: Ledger, error: PoiseError) -> None:
    """Write down why a run failed, where the disk still takes it."""
    try:
        ledger.event(f"failed: {error.message}")
        ledger.set("status", "failed")
    except PoiseError:
        return


__all__ = ["begin", "resume", "resume_run", "train"]
