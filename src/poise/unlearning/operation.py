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
from poise.core.errors import InvalidOption
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
from poise.unlearning.request import (
    Request,
    checked_clients,
    known_clients,
    load,
    units_of,
)
from poise.unlearning.request_context import RequestContext, context_of
from poise.unlearning.restart_tree import Node
from poise.unlearning.retraining import (
    UNLEARNED_SCORE,
    Goal,
    federation_without,
    for_request,
    has_started,
    present_score,
    record_model,
    retrain,
    score_on,
    unlearned_score,
)
from poise.unlearning.shards import ShardEnsemble, ensemble_in, holds_shards
from poise.unlearning.unaltered import (
    require_as_certified,
    require_at_rest,
    require_unchanged,
    whole_contents,
)


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
    run: Run | ShardEnsemble | str | Path,
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
    if method == "shards" or isinstance(run, ShardEnsemble) or holds_shards(run):
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
    begun: Callable[[], None] = lambda: None,
) -> Unlearned:
    """Fulfil a request: decide where to restart, retrain the remaining clients, and certify.

    ``begun`` is called once poise has accepted the request, before retraining. A refused
    request raises before, and so does not call it.
    """
    trained = open_run(run) if isinstance(run, str | Path) else run
    histories, earlier = _histories(trained, request)
    require_ended(histories.root)
    if earlier is not None:
        return _result_of(earlier)
    # Check the clients first: a wrong request must not create a folder.
    checked_clients(request.clients, histories.root.clients, histories.unlearned)
    whole_contents(histories)
    with locked_folder(histories.folder):
        # as the request before this one left them
        histories, earlier = _histories(trained, request)
        if earlier is not None:
            return _result_of(earlier)
        clients = checked_clients(
            request.clients, histories.root.clients, histories.unlearned
        )
        request = replace(request, clients=clients)
        context = context_of(histories, request, federation=federation, task=task)
        prepared = _prepare(context)
        begun()
        goal = Goal(prepared.request.options, context.score, stop)
        return _finish(context, prepared, goal=goal, callbacks=callbacks)


def fulfilled(run: Run | str | Path, request: UnlearnRequest) -> Unlearned | None:
    """Return the result of the same request if it was made before; None otherwise.

    Raises where the clients were unlearned with other options.
    """
    trained = open_run(run) if isinstance(run, str | Path) else run
    _, earlier = _histories(trained, request)
    return None if earlier is None else _result_of(earlier)


def _histories(
    trained: Run, request: UnlearnRequest
) -> tuple[Histories, Branch | None]:
    """Return the histories of a run, and the branch of this request if it was made before.

    Raises where the histories are not as their certificates say.
    """
    folder = None if request.out is None else Path(request.out)
    histories = Histories.of(trained, folder, repair=True)
    known_clients(request.clients, histories.root.clients)
    require_as_certified(histories)
    histories = repaired(histories, request.clients)
    return histories, fulfilled_before(histories, request)


def _finish(
    context: RequestContext,
    prepared: PreparedRequest,
    *,
    goal: Goal,
    callbacks: Iterable[Callable[[Record], None]],
) -> Unlearned:
    """Retrain until the goal is met, and certify the result; a stopped request stays open."""
    request = prepared.request
    histories = context.histories
    folder = histories.branch_folder(request.index)
    if _is_covered(histories):
        assert folder is not None
        branch = open_run(folder)
    else:
        branch = _new_branch(context, prepared, goal=goal, callbacks=callbacks)
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
    document = _certificate(context, prepared, branch=branch, reached=goal.met)
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


def _certificate(
    context: RequestContext, prepared: PreparedRequest, *, branch: Run, reached: bool
) -> dict[str, Any]:
    """Return the certificate of a branch; raise where a model or a ledger is damaged by now."""
    histories = context.histories
    request = prepared.request
    histories.run(request.node[0]).models(request.node[1])
    for n in (0, branch.rounds):
        branch.models(n)  # raises where it is not the model that the ledger recorded
    measured = _score_on_removed(context, branch)
    branch.settle()
    document = certify(
        histories,
        request,
        grounds=prepared.grounds,
        score=context.score,
        reached=reached,
        unlearned_score=measured,
    )
    require_unchanged(histories, context.contents)
    require_at_rest(document, histories)
    return document


def _is_covered(histories: Histories) -> bool:
    """Whether a later certificate covers the newest branch: only its own certificate is lost."""
    later = histories.branch_folder(len(histories.branches) + 1)
    return later is not None and (later / CERTIFICATE).exists()


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


def _new_branch(
    context: RequestContext,
    prepared: PreparedRequest,
    *,
    goal: Goal,
    callbacks: Iterable[Callable[[Record], None]],
) -> Run:
    """Retrain the remaining clients, or record the model that needs no rounds."""
    request = prepared.request
    folder = context.histories.branch_folder(request.index)
    composition = for_request(context.remaining, request, score=context.score)
    if request.method == "exact":
        return _record_exact(composition, prepared, folder=folder, goal=goal)
    return retrain(
        composition, prepared.start, folder=folder, goal=goal, callbacks=callbacks
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
    return record_model(composition, model, folder=folder, goal=goal)


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


def _score_on_removed(context: RequestContext, branch: Run) -> float | None:
    """Return the score of the new model on the unlearned clients, if it was measured.

    The ledger of the branch records it. A branch that a later certificate covers stays
    as it is.
    """
    known = unlearned_score(branch)
    asked = context.options.measure_forgotten and not _is_covered(context.histories)
    if known is not None or not asked:
        return known
    whole = context.whole
    removed = set(context.removed)
    others = [c for c in range(whole.federation.clients) if c not in removed]
    unlearned = federation_without(whole.federation, others)
    oracle = whole.task.bind(unlearned, whole.backend.device)
    score = score_on(oracle, torch.from_numpy(branch.model), score=context.score)
    branch.note(UNLEARNED_SCORE, score)
    return score


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
    started = _is_covered(histories) or (has_started(folder) and not repeats)
    if unfinished is not None and started:
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
    # Read the restart model first: a damaged file must not leave a request behind.
    start = start_model(request, histories, parts=whole.parts, seed=seed)
    if folder is not None:
        request.save(folder)
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
