"""`poise.unlearn`: unlearn clients of a run, and certify the result."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from poise.config.unlearn_request import (
    Guarantee,
    Method,
    Noise,
    UnlearnRequest,
    client_numbers,
)
from poise.core.errors import InvalidOption, LedgerError
from poise.core.federations import FederationLike, TaskLike
from poise.core.types import Record
from poise.core.vectors import Vector
from poise.ledger.run import Run, open_run
from poise.privacy.budget import Budget, Participation
from poise.privacy.gaussian import Calibration
from poise.training import Composition, never
from poise.unlearning.certificate import certify, read, write
from poise.unlearning.conditions import conditions_of
from poise.unlearning.histories import (
    CERTIFICATE,
    Branch,
    Histories,
    locked_folder,
    require_ended,
)
from poise.unlearning.methods import (
    CERTIFIED,
    COMPLETE,
    check_method,
    decide,
    grounds_for,
    start_model,
)
from poise.unlearning.noise import commitment
from poise.unlearning.proof import Grounds, require_proof
from poise.unlearning.repeated_requests import fulfilled_before, repaired
from poise.unlearning.request import Request, checked_clients, load, units_of
from poise.unlearning.request_context import RequestContext, context_of
from poise.unlearning.restart_tree import Node
from poise.unlearning.retraining import (
    Goal,
    federation_without,
    for_request,
    has_started,
    present_score,
    record_model,
    retrain,
    score_on,
)
from poise.unlearning.shards import Shards, ensemble_in, holds_shards


@dataclass(frozen=True)
class Unlearned:
    """The result of a request.

    Attributes:
        run: the new branch.
        rounds: rounds of retraining.
        restart: (branch, round) of the model that retraining started from.
        certificate: the certificate; empty where the request was stopped before its
            end.
        reached: whether retraining reached the target.
        path: the file of the certificate; None for a run in memory.
    """

    run: Run
    rounds: int
    restart: Node
    certificate: dict[str, Any]
    reached: bool
    path: Path | None = None


def unlearn(
    run: Run | Shards | str | Path,
    clients: int | Iterable[int],
    method: Method = "sifu",
    epsilon: float = 10.0,
    delta: float = 0.01,
    sigma: float | Literal["plan"] = 0.05,
    target: float | None = None,
    *,
    calibration: Calibration = "analytic",
    participation: Participation = "conservative",
    strong_convexity: float | None = None,
    min_rounds: int = 50,
    max_rounds: int = 10_000,
    heuristic: bool = False,
    plan_sigma: bool = False,
    guarantee: Guarantee = "each",
    noise: Noise = "secret",
    measure_forgotten: bool = False,
    held_out: bool = False,
    out: str | Path | None = None,
    federation: FederationLike | None = None,
    task: TaskLike | None = None,
    callbacks: Iterable[Callable[[Record], None]] = (),
    stop: Callable[[], bool] = never,
) -> Unlearned:
    """Unlearn clients: restart from a model that they hardly moved, add noise, retrain the others.

    Requests add up: each continues the history that the last one left, as a new branch
    of the run's folder, and covers all clients unlearned so far. Repeat an interrupted
    request to finish it.

    Args:
        run: the training run (or any branch of it), or its folder; for ``shards`` the
            ensemble or its folder.
        clients: the clients to unlearn, numbered as in the training.
        method: ``sifu`` (IFU for a first request), ``scratch``, ``fine-tune``,
            ``last``, ``dp`` (for a run trained with `Clipped` weights and a `Noisy`
            server), ``fed-accum`` (for a run with ``keep_updates``), ``exact`` (for
            `poise.ridge`, with ``keep_updates``) or ``shards`` (for `poise.shards`).
        epsilon: epsilon of the guarantee.
        delta: delta of the guarantee.
        sigma: standard deviation of the noise (``last`` computes its own, ``dp`` added
            its noise during training).
        target: accuracy on the remaining clients at which retraining ends (a loss, for
            tasks without accuracy); by default 99 % of the present model's accuracy on
            them.
        calibration: of the Gaussian mechanism, ``analytic`` or ``classical`` (for
            epsilon < 1).
        participation: how partial participation counts: ``conservative`` renormalises
            inside the recorded cohort; ``optimistic`` takes ``p_c/(1 - p_c)`` for any
            cohort, which is smaller and no bound.
        strong_convexity: mu of the clients' losses, where it is known.
        min_rounds: retrain for at least this many rounds.
        max_rounds: stop retraining after this many rounds.
        heuristic: continue where the bound has no proof; the certificate says so.
        plan_sigma: choose sigma from the noise levels that training declared
            ([unlearning] sigmas), by the expected number of rounds; the same as
            ``sigma="plan"``.
        guarantee: ``each`` guarantees (epsilon, delta) for every client of the request
            by itself; ``group`` for all of them together, which restarts earlier.
        noise: ``secret`` draws a seed that poise does not keep; the certificate only
            commits to it. ``seeded`` draws the noise from the run's seed, for tests:
            the result is reproducible, and the noise hides nothing from anyone who
            knows the seed.
        measure_forgotten: also measure the new model on the unlearned clients, which
            reads their data.
        held_out: the target is the accuracy on the held-out data, not on the remaining
            clients' training data.
        out: folder of the branches; ``unlearning`` in the run's folder by default.
        federation: required if the run was made with data given as Python objects.
        task: required if the run was made with a task given as a Python object.
        callbacks: called with the record of each round of retraining.
        stop: called before each round; true stops retraining, and the same request
            resumes it.

    Source: [Fraboni 2023, Alg. 6 and 7].
    """
    planned = plan_sigma or bool(sigma == "plan")  # NumPy has its own truth values
    request = UnlearnRequest(
        clients=client_numbers(clients),
        method=method,
        epsilon=epsilon,
        delta=delta,
        sigma=Budget.sigma if sigma == "plan" else sigma,
        plan_sigma=planned,
        target=target,
        calibration=calibration,
        participation=participation,
        strong_convexity=strong_convexity,
        min_rounds=min_rounds,
        max_rounds=max_rounds,
        heuristic=heuristic,
        guarantee=guarantee,
        noise=noise,
        measure_forgotten=measure_forgotten,
        held_out=held_out,
        out=None if out is None else str(out),
    )
    if method == "shards" or isinstance(run, Shards) or holds_shards(run):
        from poise.unlearning.shard_requests import fulfil_shards

        return fulfil_shards(
            ensemble_in(run, method),
            request,
            federation=federation,
            task=task,
            callbacks=callbacks,
            stop=stop,
        )
    return fulfil(
        run, request, federation=federation, task=task, callbacks=callbacks, stop=stop
    )


def fulfil(
    run: Run | str | Path,
    request: UnlearnRequest,
    federation: FederationLike | None = None,
    task: TaskLike | None = None,
    callbacks: Iterable[Callable[[Record], None]] = (),
    stop: Callable[[], bool] = never,
) -> Unlearned:
    """Fulfil a request: decide where to restart, retrain the remaining clients, and certify."""
    trained = open_run(run) if isinstance(run, str | Path) else run
    folder = None if request.out is None else Path(request.out)
    histories = _histories(trained, folder, request)
    require_ended(histories.root)
    earlier = fulfilled_before(histories, request)
    if earlier is not None:
        return _result_of(earlier)
    # Check the clients first: a wrong request must not create a folder.
    checked_clients(request.clients, histories.root.clients, histories.unlearned)
    with locked_folder(histories.folder):
        # as the request before this one left them
        histories = _histories(trained, folder, request)
        clients = checked_clients(
            request.clients, histories.root.clients, histories.unlearned
        )
        request = replace(request, clients=clients)
        context = context_of(histories, request, federation=federation, task=task)
        prepared = _prepare(context)
        goal = Goal(prepared.request.options, context.score, stop)
        return _finish(context, prepared, goal=goal, callbacks=callbacks)


def _histories(trained: Run, folder: Path | None, request: UnlearnRequest) -> Histories:
    """Return the histories of a run; raise where a ledger is damaged or altered."""
    histories = repaired(Histories.of(trained, folder, repair=True), request)
    for run, _ in histories.lengths():
        if run.damage:
            raise LedgerError(
                f"{run!r}: {run.damage}",
                "poise certifies only what a whole ledger shows: restore it from a backup",
            )
    return histories


def _finish(
    context: RequestContext,
    prepared: PreparedRequest,
    *,
    goal: Goal,
    callbacks: Iterable[Callable[[Record], None]],
) -> Unlearned:
    """Retrain until the goal is met, and certify the result; a stopped request stays open."""
    request = prepared.request
    score = context.score
    histories = context.histories
    folder = histories.branch_folder(request.index)
    composition = for_request(context.remaining, request, score=score)
    if request.method == "exact":
        branch = _record_exact(composition, prepared, folder=folder, goal=goal)
    else:
        branch = retrain(
            composition, prepared.start, folder=folder, goal=goal, callbacks=callbacks
        )
        goal.follow(branch)
    ended = request.method == "exact" or branch.rounds >= context.options.max_rounds
    if not goal.met and not ended:
        return Unlearned(
            branch,
            rounds=branch.rounds,
            restart=request.node,
            certificate={},
            reached=False,
        )
    histories.record(Branch(request, branch, done=True))
    unlearned_score = None
    if context.options.measure_forgotten:
        unlearned_score = _score_on_removed(context, branch)
    document = certify(
        histories,
        request,
        grounds=prepared.grounds,
        score=score,
        reached=goal.met,
        unlearned_score=unlearned_score,
    )
    histories.branches[-1].certificate = document
    path = None if folder is None else write(document, folder)
    return Unlearned(
        branch,
        rounds=branch.rounds,
        restart=request.node,
        certificate=document,
        reached=goal.met,
        path=path,
    )


def _result_of(branch: Branch) -> Unlearned:
    """Return the result of a request that was fulfilled before."""
    assert branch.run is not None
    if branch.run.path is not None:
        return outcome(branch.run)
    return Unlearned(
        branch.run,
        rounds=branch.run.rounds,
        restart=branch.request.node,
        certificate=branch.certificate,
        reached=branch.certificate["result"]["target reached"],
    )


def _record_exact(
    composition: Composition,
    prepared: PreparedRequest,
    *,
    folder: Path | None,
    goal: Goal,
) -> Run:
    """Record the model without the clients' sums, and measure it for the goal."""
    model = prepared.start
    assert model is not None
    oracle = composition.task.bind(composition.federation, composition.backend.device)
    goal.value = present_score(composition, oracle, model=model, score=goal.score)
    goal.request = replace(goal.request, min_rounds=0)
    return record_model(composition, model, folder=folder, score=goal.value)


def outcome(branch: Run) -> Unlearned:
    """Read the result of a request from the folder of its branch.

    The certificate is empty where the request is not finished.
    """
    assert branch.path is not None
    path = branch.path / CERTIFICATE
    document = read(path) if path.exists() else {}
    reached = bool(document) and document["result"]["target reached"]
    return Unlearned(
        branch,
        rounds=branch.rounds,
        restart=load(branch.path).node,
        certificate=document,
        reached=reached,
        path=path if document else None,
    )


def _score_on_removed(context: RequestContext, branch: Run) -> float:
    """Return the score of the new model on the unlearned clients."""
    whole = context.whole
    removed = set(context.removed)
    others = [c for c in range(whole.federation.clients) if c not in removed]
    unlearned = federation_without(whole.federation, others)
    oracle = whole.task.bind(unlearned, whole.backend.device)
    return score_on(oracle, torch.from_numpy(branch.model), score=context.score)


@dataclass(frozen=True)
class PreparedRequest:
    """A request with its decision; ``start`` is None where retraining has already started."""

    request: Request
    grounds: Grounds
    start: Vector | None


def _prepare(context: RequestContext) -> PreparedRequest:
    """Decide about a request, and write the decision to disk before retraining."""
    histories = context.histories
    whole = context.whole
    options = context.options
    unfinished = histories.open_request
    if unfinished is not None:
        require_same(Request(options), unfinished)
    budget = options.budget
    check_method(options.method, histories, parts=whole.parts, budget=budget)
    partly_trained = context.layout.trainable < context.layout.size
    grounds = grounds_for(
        options.method,
        whole.parts,
        partly_trained,
        budget=budget,
        conditions=conditions_of(histories.lengths(), whole.parts, context.curvature),
        audit=whole.options.audit,
        start=whole.options.start,
    )
    if options.method in CERTIFIED and options.method not in COMPLETE:
        require_proof(grounds.gaps, options.heuristic)
    index = histories.newest + 1
    folder = histories.branch_folder(index)
    repeats = options.method == "exact"  # its model needs no rounds
    if unfinished is not None and has_started(folder) and not repeats:
        return PreparedRequest(unfinished, grounds, start=None)
    decision = decide(options.method, histories, units_of(options), budget)
    seed = whole.seed if options.noise == "seeded" else secrets.randbits(120)
    request = Request(
        options,
        index,
        node=decision.node,
        sigma=decision.sigma,
        commitment=commitment(seed, index) if decision.sigma else "",
        curvature=context.curvature,
    )
    if folder is not None:
        request.save(folder)
    start = start_model(request, histories, parts=whole.parts, seed=seed)
    return PreparedRequest(request, grounds, start)


def require_same(request: Request, unfinished: Request) -> None:
    """Raise where a request differs from the unfinished one."""
    differences = request.differences(unfinished)
    if differences:
        clients = ", ".join(map(str, unfinished.clients))
        options = ", ".join(f"{name} = {value}" for name, value in differences.items())
        raise InvalidOption(
            (
                f"request {unfinished.index} (clients {clients}, {unfinished.method}) is "
                "not finished"
            ),
            f"finish it first: repeat it with the options {options}",
        )
