"""A request with the run that it concerns: what is left of the run, and the target."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from poise.config.unlearn_request import UnlearnRequest
from poise.core.curvature import Curvature
from poise.core.errors import IncompatibleParts, InvalidOption, LedgerError
from poise.core.federations import FederationLike, TaskLike
from poise.core.protocols import HasName, Oracle
from poise.core.vectors import Layout
from poise.privacy.budget import UnlearningPlan
from poise.results import Run
from poise.training import Composition, experiment_of, refuse_other_experiment
from poise.unlearning.histories import Histories
from poise.unlearning.noise_plan import planned_sigma
from poise.unlearning.retraining import (
    ACCURACY,
    HELD_OUT,
    check_retraining,
    composition_of,
    composition_without,
    default_target,
    present_score,
    require_facts,
    score_name,
    training_curvature,
)
from poise.unlearning.unaltered import Contents, whole_contents


@dataclass(frozen=True)
class RequestContext:
    """A request with the run that it concerns.

    Args:
        options: the options of the request, with a target.
        histories: the training and the branches of earlier requests.
        whole: the run as it was trained.
        remaining: the same run on the remaining clients.
        layout: of the models.
        score: the metric of the target.
        curvature: bounds of the Hessians of all clients of the training.
        contents: of the training and the earlier branches, when poise read them.
    """

    options: UnlearnRequest
    histories: Histories
    whole: Composition
    remaining: Composition
    layout: Layout
    score: str
    curvature: Curvature | None
    contents: Contents

    @property
    def removed(self) -> list[int]:
        """The clients of this request, and all clients unlearned before."""
        return sorted({*self.histories.unlearned, *self.options.clients})


def context_of(
    histories: Histories,
    options: UnlearnRequest,
    *,
    federation: FederationLike | None,
    task: TaskLike | None,
) -> RequestContext:
    """Compose the run without the clients of a request; raise where it cannot be retrained."""
    contents = whole_contents(histories)
    whole = composition_of(histories.root, federation, task)
    backend = whole.backend
    on_nodes = isinstance(backend, HasName) and backend.name == "flower"
    if on_nodes and federation is None:
        raise InvalidOption(
            "the clients of this run are nodes of a deployment",
            "use `poise deploy unlearn RUN --to DIR`",
        )
    _require_same_training(histories.root, whole, on_nodes=on_nodes)
    removed = sorted({*histories.unlearned, *options.clients})
    curvature = training_curvature(histories.root, whole)
    remaining = replace(composition_without(whole, removed), curvature=curvature)
    oracle = remaining.task.bind(remaining.federation, remaining.backend.device)
    if oracle.layout.trainable != histories.root.trainable:
        raise LedgerError(
            f"{histories.root!r}: its ledger has another 'trainable' than its task",
            "restore the folder from a backup",
        )
    score = score_name(oracle.metrics, options.held_out)
    # Check before request.json is written: only finishing the request removes it again.
    check_retraining(remaining, oracle, score=score)
    if options.target is None and remaining.parts.personal is not None:
        raise InvalidOption(
            (
                "personal layers: poise cannot measure the present score of the clients' "
                "own models"
            ),
            "give target=",
        )
    if options.target is None:
        target = _default_target(histories, remaining, oracle=oracle, score=score)
        options = replace(options, target=target)
    context = RequestContext(
        options=options,
        histories=histories,
        whole=whole,
        remaining=remaining,
        layout=oracle.layout,
        score=score,
        curvature=curvature,
        contents=contents,
    )
    if not options.plan_sigma:
        return context
    sigma = _planned_sigma(context, oracle)
    return replace(context, options=replace(options, sigma=sigma))


def _require_same_training(root: Run, whole: Composition, *, on_nodes: bool) -> None:
    """Raise where the experiment or the data are not those that a run was trained with."""
    refuse_other_experiment(root.fact("experiment"), whole)
    spec = whole.task.spec or {}
    if "task" not in experiment_of(root).tables and "model" in spec:
        raise IncompatibleParts(
            "[task]: the run was trained with a task of Python objects, not with "
            f"{spec}",
            "give the task that the run was trained with: L rests on its loss",
            where=("task",),
        )
    root.models(0)  # raises where it is not the one that training recorded
    if not on_nodes:  # nodes report only the data of remaining clients
        require_facts(root, whole)


def _planned_sigma(context: RequestContext, oracle: Oracle) -> float:
    """Return the planned noise of the unfinished request, or else plan it."""
    histories = context.histories
    if histories.open_request is not None:
        return histories.open_request.options.sigma
    sign = (
        1.0 if context.score in (ACCURACY, HELD_OUT) else -1.0
    )  # a loss is better small
    declared = context.whole.unlearning
    assert context.options.target is not None
    return planned_sigma(
        histories,
        context.options.budget,
        sigmas=declared.sigmas if isinstance(declared, UnlearningPlan) else (),
        score=lambda model: (
            sign
            * present_score(context.remaining, oracle, model=model, score=context.score)
        ),
        target=sign * context.options.target,
    )


def _default_target(
    histories: Histories, remaining: Composition, *, oracle: Oracle, score: str
) -> float:
    """Return the target of the unfinished request, or else one from the present model's score."""
    if histories.open_request is not None:
        return histories.open_request.target
    newest = torch.from_numpy(histories.run(histories.newest).model)
    return default_target(
        present_score(remaining, oracle, model=newest, score=score), score
    )
