"""Fulfil a request: retrain the remaining clients from its restart model, and certify."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from poise.config.unlearn_request import (
    UnlearnRequest,
)
from poise.core.federations import FederationLike, TaskLike
from poise.core.types import Record
from poise.results import Run, open_run
from poise.training import Composition, never
from poise.unlearning.certificate import certify, read
from poise.unlearning.histories import (
    CERTIFICATE,
    Branch,
    Histories,
    locked_folder,
    require_ended,
)
from poise.unlearning.prepared_request import PreparedRequest, is_covered, prepare
from poise.unlearning.repeated_requests import fulfilled_before, repaired
from poise.unlearning.request import (
    checked_clients,
    known_clients,
    load,
)
from poise.unlearning.request_context import RequestContext, context_of
from poise.unlearning.restart_tree import Node
from poise.unlearning.retraining import (
    UNLEARNED_SCORE,
    Goal,
    federation_without,
    for_request,
    present_score,
    record_model,
    retrain,
    score_on,
    unlearned_score,
)
from poise.unlearning.signed import anchor_of, issue, require_key, subjects_of
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
    if histories.folder is not None:
        require_key()
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
        prepared = prepare(context)
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
    if is_covered(histories):
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
    path = None
    if folder is not None:
        path = issue(
            document,
            folder,
            subjects=subjects_of(histories, document),
            anchor=anchor_of(histories.root, histories.root.rounds),
        )
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
    asked = context.options.measure_forgotten and not is_covered(context.histories)
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
