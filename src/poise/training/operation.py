"""Begin and resume runs: open the ledger, set up the engine's state, run the rounds."""

from __future__ import annotations

import json
import tomllib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
import torch
from numpy.typing import ArrayLike

from poise import engine
from poise.config.experiment import migrated
from poise.config.run_options import (
    END_RULES,
    AuditAction,
    BadUpdates,
    Keep,
    RunOptions,
)
from poise.core.algorithm_state import AlgorithmState
from poise.core.client_names import NAMES
from poise.core.end_rules import EndTracker
from poise.core.errors import (
    IncompatibleParts,
    LedgerError,
    PoiseError,
    require,
    sizes_checked,
)
from poise.core.federations import FederationLike, TaskLike
from poise.core.gradients import Gradients
from poise.core.history import History
from poise.core.numerics import HINT, mkl_mode, warn_if_not_reproducible
from poise.core.own_code import IMPORT, changes_between, recorded_code
from poise.core.progress import run_progress
from poise.core.protocols import (
    Aggregator,
    Attack,
    Backend,
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
from poise.core.traits import TaskTraits, traits_of
from poise.core.types import Record
from poise.engine.local_work import BackendPart
from poise.evidence.digests import DigestSigner
from poise.ledger import models
from poise.ledger.files import REQUEST
from poise.ledger.models import content_hash
from poise.ledger.recovery import Restart, reopen
from poise.ledger.redaction import ERASED
from poise.ledger.store import ENDING, TENSORS, Ledger
from poise.privacy.budget import Budget
from poise.results import Run, open_run
from poise.results.modules import SAMPLE_FORM
from poise.training.before_training import check_batches, unmeasured
from poise.training.composition import (
    ALTERED,
    NO_TASK,
    Composition,
    Prepared,
    prepare,
)
from poise.training.divergence import divergence
from poise.training.experiment_files import compose, recorded
from poise.training.own_code import refuse_other_layout
from poise.training.slots import composed, slot

Callback = Callable[[Record], None]


def never() -> bool:
    """Return False: the default of ``stop``."""
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
    callbacks: Iterable[Callback] = (),
    metrics: Iterable[str] = (),
    keep: Keep = "last",
    bad_updates: BadUpdates = "stop",
    stop: Callable[[], bool] = never,
    personal: Personal | str | None = None,
    start: ArrayLike | torch.Tensor | None = None,
    unlearning: Budget | None = None,
    keep_updates: bool = False,
    audit: AuditAction | None = None,
    stop_when: str | None = None,
    patience: int | None = None,
    patience_metric: str | None = None,
    max_bytes: int | None = None,
    max_seconds: float | None = None,
    aggregator: Aggregator | str | None = None,
    channel: Channel | str | None = None,
    progress: bool | None = None,
) -> Run:
    """Train one model on a federation; every slot takes a part or its name.

    Args:
        federation: the clients and their data (`poise.federation`, `poise.quadratics`).
        task: the model and the loss (`poise.task`, `poise.Task`).
        solver: what each client does.
        sampler: which clients work; all by default.
        clock: when answers count; synchronous by default.
        weighting: how much each update counts; proportional by default.
        server: how the direction is applied; added by default.
        rounds: number of aggregations; 100 if ``time`` is not given either.
        time: budget of simulated time.
        seed: of every draw; the same seed gives the same run.
        evaluate_every: measure after every so many aggregations, and after the last.
        backend: where work is executed, by name or as a part.
        out: run folder; None keeps the run in memory.
        attacks: what dishonest clients send instead of their updates.
        callbacks: called with the record of each aggregation.
        metrics: metrics beside the held-out ones, e.g. ``"client_loss"``.
        keep: which models to keep: ``"all"``, ``"unlearnable"``, ``"last"``.
        bad_updates: ``"stop"`` at an update that is not finite, or ``"drop"`` it and go
            on.
        stop: called before each round; True ends the run cleanly.
        personal: which parameters stay with each client; none by default.
        start: the initial model, (d,); the task's own by default.
        unlearning: the guarantee of later unlearning requests; ``keep="unlearnable"``
            keeps the models for it.
        keep_updates: keep every update of every round, to aggregate again without some
            clients (``fed-accum``, ``exact``).
        audit: look for free-riders after every round, and ``"warn"`` or
            ``"quarantine"``. Quarantine sets their weight to 0 and scales the other
            weights to the same total. Both raise a warning and record an event.
        stop_when: end the run after the first measurement that meets this condition,
            e.g. ``"accuracy >= 0.9"``.
        patience: end the run after so many measurements in a row without a better
            value.
        patience_metric: the metric of ``patience``; accuracy if the run measures it, or
            else a loss.
        max_bytes: end the run after the round in which clients and server have sent so
            many bytes.
        max_seconds: end the run once its rounds have taken so many seconds. Seconds are
            measured, so this end is not reproducible.
        aggregator: how weighted updates become one direction; their weighted sum by
            default.
        channel: what happens to an update on its way to the server; nothing by default.
        progress: show a bar on stderr; by default after two seconds in a terminal or a
            notebook, and never elsewhere.
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
        stop_when=stop_when,
        patience=patience,
        patience_metric=patience_metric,
        max_bytes=max_bytes,
        max_seconds=max_seconds,
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
        federation,
        task,
        chosen=chosen,
        options=options,
        attacks=attacks,
        unlearning=unlearning,
    )
    with run_progress(progress, options.rounds) as shown:
        observers = (*callbacks, *shown)
        return begin(composition, out, callbacks=observers, stop=stop, start=start)


def begin(
    composition: Composition,
    out: str | Path | None = None,
    callbacks: Iterable[Callback] = (),
    stop: Callable[[], bool] = never,
    start: ArrayLike | torch.Tensor | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Run:
    """Begin a composed run in a new folder, or in memory.

    ``start`` replaces the task's own initial model; the ledger also records ``facts``.
    """
    warn_if_not_reproducible()
    with sizes_checked():
        prepared = prepare(composition)
        check_batches(prepared.composition, prepared.oracle)
        state = engine.initial(prepared.oracle, prepared.plan)
    lost = unmeasured(prepared.composition, prepared.oracle)
    if lost and start is None:  # a branch of a run repeats no warning
        warnings.warn(str(lost), stacklevel=3)
    if start is not None:
        state = _starting_from(start, state)
        composition = prepared.composition.with_options(
            start=content_hash({"theta": state.theta})
        )
        prepared = replace(prepared, composition=composition)
    meta, arrays = prepared.facts()
    meta |= facts or {}
    folder = None
    if out is not None:
        folder = Path(out)
    ledger = Ledger.create(folder, meta, arrays, meta["experiment"])
    with _closed_on_error(ledger):
        ledger.start(state.theta)
        ending = EndTracker(prepared.plan.end_rules)
        hooks = RunHooks(tuple(callbacks), stop, ending=ending)
        return _run_rounds(
            prepared, ledger, state, history=_history(prepared), hooks=hooks
        )


def _starting_from(
    start: ArrayLike | torch.Tensor, state: engine.State
) -> engine.State:
    """Return the first state of a run with this initial model."""
    theta = torch.as_tensor(np.asarray(start))
    finite = theta.is_floating_point() and bool(torch.isfinite(theta).all())
    require(
        theta.shape == state.theta.shape and finite,
        f"start has shape {tuple(theta.shape)}, the task's models ({len(state.theta)},)",
        "give a vector of finite numbers with the shape of the task's models",
    )
    return replace(state, theta=theta.to(state.theta).clone())


def resume(
    path: str | Path,
    federation: FederationLike | None = None,
    task: TaskLike | None = None,
    callbacks: Iterable[Callback] = (),
    stop: Callable[[], bool] = never,
    rounds: int | None = None,
    backend: BackendPart | str | None = None,
    go_back: bool = False,
    progress: bool | None = None,
) -> Run:
    """Resume a run at its last good round, and bring it to its end.

    Args:
        path: the run folder.
        federation: required if the run began with a federation of Python objects.
        task: required if the run began with a task of Python objects.
        callbacks: called with the record of each aggregation.
        stop: called before each round; True ends the run cleanly.
        rounds: a new number of rounds, to continue after the planned end, or after the
            early end by a rule such as ``stop_when``, which no longer applies then.
        backend: another backend; the result does not depend on it.
        go_back: continue from the last good round even if that takes back more than one
            recorded round.
        progress: as for `train`.
    """
    folder = Path(path)
    refuse_branch(folder)
    experiment = recorded(folder)
    composition = compose(experiment, experiment.seeds[0], federation, task)
    if rounds is not None:
        composition = _with_rounds(composition, rounds, folder)
    if backend is not None:
        composition = composition.with_options(backend=slot("backend", backend))
    with experiment.located(), run_progress(progress, composition.rounds) as shown:
        observers = (*callbacks, *shown)
        return resume_run(
            composition, folder, callbacks=observers, stop=stop, go_back=go_back
        )


def _with_rounds(composition: Composition, rounds: int, folder: Path) -> Composition:
    """Return a run with another number of rounds, and without the rules that ended it."""
    run = open_run(folder)
    ended_early = run.ending and rounds > run.rounds
    run.close()
    if ended_early:
        composition = composition.without_end_rules()
    return composition.with_options(rounds=rounds)


def refuse_branch(folder: Path, verb: str = "poise unlearn") -> None:
    """Raise for a branch of an unlearning request, which decides how it ends."""
    if (folder / REQUEST).exists():
        raise IncompatibleParts(
            f"{folder} belongs to an unlearning request, which decides when the run ends",
            f"repeat `{verb}` with the same clients and options to finish it",
        )


def resume_run(
    composition: Composition,
    path: Path,
    callbacks: Iterable[Callback] = (),
    stop: Callable[[], bool] = never,
    *,
    go_back: bool = False,
) -> Run:
    """Resume a run at its last good round; it ends bit for bit as if uninterrupted.

    ``go_back`` allows to take back more than one recorded round.
    """
    prepared = prepare(composition)
    meta, arrays = prepared.facts()
    ledger, restart = reopen(path, meta, arrays, go_back=go_back)
    with _closed_on_error(ledger):
        recorded_meta = ledger.meta()
        if ERASED in recorded_meta:
            raise IncompatibleParts(
                f"request {recorded_meta[ERASED]} erased clients from this run: it would "
                "train them again",
                "use the newest branch of the run, in its folder unlearning",
            )
        if recorded_meta.get("frozen", "") != prepared.oracle.frozen:
            raise IncompatibleParts(
                "the frozen parameters of the task differ from those at the start of the run",
                "give the task that the run began with",
                where=("task",),
            )
        refuse_other_layout(recorded_meta, meta)
        refuse_other_experiment(recorded_meta["experiment"], composition)
        _refuse_fewer_rounds(composition, restart.index)
        state = _state_at(restart, prepared, ledger)
        _record_altered(ledger, recorded_meta, now=meta)
        for name in (TENSORS, SAMPLE_FORM, NAMES):  # poise 0.2 did not record them
            if name in meta and name not in recorded_meta:
                ledger.set(name, meta[name])
        experiment = with_opening_remark(
            meta["experiment"], recorded=recorded_meta["experiment"]
        )
        if experiment != recorded_meta["experiment"]:
            ledger.set_experiment(experiment)
        personal = {
            name: values for name, values in arrays.items() if name == "personal"
        }
        if (
            personal and ledger.array("personal") is None
        ):  # poise 0.1 did not record them
            ledger.add_arrays(personal)
        ending = EndTracker(prepared.plan.end_rules)
        ending.resume(restart.records)
        ended = recorded_meta["status"] in ("done", "diverged")
        complete = ended and (_ended(composition, state) or bool(ending.reason))
        if not complete:
            if recorded_meta.get(ENDING) and not ending.reason:
                ledger.event(f"continued although ended early: {recorded_meta[ENDING]}")
            ledger.event("resumed" + _numerics_remark(recorded_meta))
            _record_code(ledger, recorded_meta, now=meta)
            ledger.set("status", "running")
        history = _history(prepared)
        history.resume(restart.records, restart.client_states, restart.server)
        hooks = RunHooks(tuple(callbacks), stop, ending=ending)
        return _run_rounds(prepared, ledger, state, history=history, hooks=hooks)


def _record_altered(
    ledger: Ledger, recorded_meta: Mapping[str, Any], now: Mapping[str, Any]
) -> None:
    """Record clients that have begun to clip their updates, or to add noise, since the start."""
    before = set(json.loads(recorded_meta.get(ALTERED, "[]")))
    both = before | set(json.loads(now.get(ALTERED, "[]")))
    if both != before:
        ledger.set(ALTERED, json.dumps(sorted(both)))


def _record_code(
    ledger: Ledger, recorded_meta: Mapping[str, Any], now: Mapping[str, Any]
) -> None:
    """Record and warn that the user's code changed since the run began."""
    for change in changes_between(recorded_code(recorded_meta), recorded_code(now)):
        ledger.event(change)
        warnings.warn(
            f"{change}: the run may not end in the same bits (restore the code, or "
            "begin a new run)",
            stacklevel=5,
        )


def _state_at(restart: Restart, prepared: Prepared, ledger: Ledger) -> engine.State:
    """Return the state after the last good round, or the initial one."""
    state = engine.initial(prepared.oracle, prepared.plan)
    start = prepared.composition.options.start
    if start is not None:
        given = ledger.store.get(models.name(0), start)["theta"]
        state = _starting_from(given, state)
    made_here = start is None and restart.theta is None
    if made_here or "initial" not in ledger.meta():  # a replaced database lacks it
        ledger.start(state.theta)
    if restart.theta is None:
        return state
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
    """Return an empty history that fits the sampler, the budget and the live audit."""
    composition = prepared.composition
    sampler = prepared.plan.parts.sampler
    gradients = None
    if "gradients" in sampler.needs:
        clients = prepared.plan.setting.clients
        gradients = Gradients(clients, sampler.measure)  # type: ignore[attr-defined]
    watch = None
    if composition.options.audit is not None:
        from poise.auditing.live import LiveAudit

        watch = LiveAudit(composition.options.audit, prepared.oracle.layout.trainable)
    return History(
        psi=composition.tracker(),
        gradients=gradients,
        watch=watch,
        directions=traits_of(composition.task, TaskTraits).directions,
    )


@contextmanager
def _closed_on_error(ledger: Ledger) -> Iterator[None]:
    """Close the ledger if the block raises."""
    try:
        yield
    except BaseException:
        ledger.close()
        raise


@dataclass(frozen=True)
class RunHooks:
    """The callbacks of a run, the function that can stop it, and what ends it early."""

    callbacks: tuple[Callback, ...] = ()
    stop: Callable[[], bool] = never
    ending: EndTracker = field(default_factory=EndTracker)


def _run_rounds(
    prepared: Prepared,
    ledger: Ledger,
    state: engine.State,
    history: History,
    hooks: RunHooks,
) -> Run:
    """Run the engine to its end, and record in the ledger how the run ended."""
    composition = prepared.composition
    local = prepared.local
    backend = composition.backend.open(local, composition.federation, composition.seed)
    if backend.real_nodes:
        ledger.flush_every = 0.0
    announce = _announcer(history, ledger)
    signer = DigestSigner(ledger.path, ledger.durable_digest)

    def after_round(record: Record) -> None:
        announce()
        signer.checkpoint(record.index + 1)
        for callback in hooks.callbacks:
            callback(record)

    environment = engine.Environment(
        backend,
        local.wire,
        journal=ledger,
        history=history,
        observers=engine.Observers(after_round, hooks.stop),
        ending=hooks.ending,
    )
    try:
        announce()  # findings that an interrupted process did not record
        signer.begin(state.index)
        with one_thread(), sizes_checked():
            end = engine.run(state, prepared.plan, environment)
        ledger.flush()
        ended_early = hooks.ending.reason
        _record_ending(ledger, ended_early)
        done = _ended(composition, end) or bool(ended_early) or not hooks.stop()
        diverged = divergence(ledger, _measured(backend, state))
        _record_end(ledger, done=done, diverged=diverged)
        signer.end(ledger.rounds())
    except PoiseError as error:
        _record_failure(ledger, error)
        raise
    finally:
        backend.close()
        history.close()
    if ledger.path is None:
        run = Run(ledger)
    else:
        ledger.close()
        run = open_run(ledger.path)
    run.task = composition.task
    return run


def _measured(backend: Backend, state: engine.State) -> Callable[[str], float]:
    """Return a function that measures one metric of the model in a state."""

    def measure(name: str) -> float:
        metrics = backend.measure(state.theta, frozenset({name}), state.algorithm_state)
        return float(metrics[name])

    return measure


def _record_ending(ledger: Ledger, reason: str) -> None:
    """Record which rule ended a run early; forget an end after which the run continued."""
    if reason:
        event = f"ended early after round {ledger.rounds()}: {reason}"
        if event not in ledger.events():
            ledger.event(event)
    if reason or ENDING in ledger.meta():
        ledger.set(ENDING, reason)


def _record_end(ledger: Ledger, done: bool, diverged: str) -> None:
    """Record how a run ended; warn if its model diverged."""
    if diverged:
        if diverged not in ledger.events():
            ledger.event(diverged)
        warnings.warn(f"{diverged} ({DIVERGED_HINT})", stacklevel=5)
    status = "done" if done else "stopped"
    if done and diverged:
        status = "diverged"
    ledger.set("status", status)


DIVERGED_HINT = (
    "lower the learning rate, clip gradients with clip=, or shorten updates with the "
    "weighting Clipped"
)


def _announcer(history: History, ledger: Ledger) -> Callable[[], None]:
    """Return a function that records each new finding of the live audit and warns."""
    recorded_events = set(ledger.events())

    def announce() -> None:
        if history.watch is None:
            return
        for finding in history.watch.news:
            if finding not in recorded_events:
                recorded_events.add(finding)
                ledger.event(finding)
                warnings.warn(finding, stacklevel=2)

    return announce


def _ended(composition: Composition, state: engine.State) -> bool:
    """Return whether all planned rounds are done."""
    return composition.rounds is not None and state.index >= composition.rounds


MAY_CHANGE = ("rounds", "time", "keep", "backend", *END_RULES)
"""The options of a run that a resume may change."""


def refuse_other_experiment(recorded_text: str, composition: Composition) -> None:
    """Raise if the experiment differs from the one with which the run began."""
    try:
        began = _comparable(tomllib.loads(recorded_text))
    except (tomllib.TOMLDecodeError, KeyError) as error:
        raise LedgerError(
            f"the ledger's copy of the experiment cannot be read: {error}",
            "restore the ledger from a backup",
        ) from error
    now = _comparable(tomllib.loads(tomli_w.dumps(composition.table())))
    for name in began.keys() & now.keys():
        if began[name] != now[name]:
            raise IncompatibleParts(
                f"[{name}] differs from the start of the run: {began[name]}",
                "change it back, or begin a new run",
                where=(name,),
            )


def with_opening_remark(text: str, recorded: str) -> str:
    """Return an experiment with the remark that begins the recorded one, if it has one.

    A run folder names every option, so a resume cannot tell which ones nobody gave.
    """
    first = recorded.partition("\n")[0]
    is_remark = first.startswith("#") and not first.startswith(NO_TASK)
    if not is_remark or first in text.splitlines():
        return text
    return f"{first}\n{text}"


def _refuse_fewer_rounds(composition: Composition, done: int) -> None:
    """Raise if the run has more rounds than it should get."""
    if composition.rounds is not None and composition.rounds < done:
        raise IncompatibleParts(
            f"rounds = {composition.rounds}, but the run has {done} rounds already",
            f"give at least {done} rounds; a resume does not take rounds back",
            where=("run", "rounds"),
        )


def _comparable(tables: dict[str, Any]) -> dict[str, Any]:
    """Return the tables with all defaults, and without the options that may change."""
    tables = migrated(tables)
    # parts are compared by name and options; their modules may move
    tables = {key: value for key, value in tables.items() if key != IMPORT}
    run = {key: value for key, value in tables["run"].items() if key not in MAY_CHANGE}
    empty: dict[str, Any] = {name: {} for name in RUN_SLOTS}
    defaults = {name: {"name": default} for name, default in DEFAULTS.items()}
    return {"attacks": [], "unlearning": {}, **empty, **defaults, **tables, "run": run}


def _numerics_remark(recorded: dict[str, str]) -> str:
    """Return a remark, and warn, if this process may round differently than before."""
    before = recorded.get("mkl", "")
    now = mkl_mode()
    if before == now:
        return ""
    remark = (
        f"the run began with MKL's reproducibility {before or 'unknown'!r}, this process has "
        f"{now!r}"
    )
    warnings.warn(f"{remark}: it may not end in the same bits ({HINT})", stacklevel=4)
    return f"; {remark}"


def _record_failure(ledger: Ledger, error: PoiseError) -> None:
    """Record why a run failed, if the disk still accepts it."""
    try:
        ledger.event(f"failed: {error.message}")
        ledger.set("status", "failed")
    except PoiseError:
        return


__all__ = ["begin", "refuse_other_experiment", "resume", "resume_run", "train"]
