"""Relearning time: how soon a model knows the unlearned clients again when they rejoin.

A model that kept knowledge of the clients needs fewer rounds than one that never saw
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from poise.core.errors import IncompatibleParts, require
from poise.core.federations import FederationLike, TaskLike
from poise.core.protocols import Oracle
from poise.core.rng import address
from poise.core.types import Floats, Ints, Record
from poise.results import Run
from poise.training import begin
from poise.unlearning.request import checked_clients
from poise.unlearning.retraining import (
    ACCURACY,
    composition_of,
    federation_without,
    score_name,
    score_on,
)


def rounds_to_relearn(
    training: Run,
    model: Run | Floats,
    clients: Sequence[int],
    *,
    level: float | None = None,
    max_rounds: int = 1000,
    federation: FederationLike | None = None,
    task: TaskLike | None = None,
) -> int | None:
    """Return the rounds until the score on the clients is back, training with all clients.

    The rounds are those of the training run, with all its parts and fresh draws.

    Args:
        training: the training run.
        model: the unlearned model: a run (its newest model) or a model (d,).
        clients: the unlearned clients.
        level: accuracy on the clients to reach (a loss, for tasks without accuracy); by
            default the score of the training's last model.
        max_rounds: give up after this many rounds and return None.
        federation: required if the run was made with data given as Python objects.
        task: required if the run was made with a task given as a Python object.
    """
    whole = composition_of(training, federation, task)
    members = np.array(checked_clients(clients, whole.federation.clients, ()))
    others = np.setdiff1d(np.arange(whole.federation.clients), members)
    theirs = whole.task.bind(
        federation_without(whole.federation, others), whole.backend.device
    )
    start = np.array(model.model if isinstance(model, Run) else model)
    score = score_name(theirs.metrics)
    if level is None:
        level = _score(theirs, training.model, score=score)
    goal = _Level(
        level,
        metric=_metric_per_client(theirs, score),
        shares=_shares(whole.federation.importance[members]),
        members=members,
        value=_score(theirs, start, score=score),
    )
    if goal.reached():
        return 0
    again = (
        replace(whole, unlearning=None)
        .without_end_rules()
        .with_options(
            rounds=max_rounds,
            time=None,
            seed=address(whole.seed, "relearning") % 2**31,
            metrics=(goal.metric,),
            evaluate_every=1,
            keep="last",
            keep_updates=False,
            start=None,
        )
    )
    run = begin(again, None, (goal.see,), goal.reached, start=start)
    return run.rounds if goal.reached() else None


@dataclass
class _Level:
    """Follows the score on some clients until it reaches a level."""

    level: float
    metric: str
    shares: Floats
    members: Ints
    value: float

    def see(self, record: Record) -> None:
        """Take in one more round."""
        scores = np.asarray(record.metrics[self.metric])
        self.value = float(self.shares @ scores[self.members])

    def reached(self) -> bool:
        """Whether the score is at the level."""
        if self.metric == "client_loss":
            return self.value <= self.level
        return self.value >= self.level


def _shares(importance: Floats) -> Floats:
    """Return the clients' importance, scaled to the sum 1."""
    total = importance.sum()
    require(float(total) > 0, "rounds_to_relearn: the clients have no importance")
    return np.asarray(importance / total)


def _metric_per_client(oracle: Oracle, score: str) -> str:
    """Return the metric per client whose mean is the score."""
    metric = "client_accuracy" if score == ACCURACY else "client_loss"
    if metric not in oracle.metrics:
        raise IncompatibleParts(
            f"rounds_to_relearn: the task does not measure {metric}",
            "use a task with a score for each client",
        )
    return metric


def _score(oracle: Oracle, model: Floats, *, score: str) -> float:
    return score_on(oracle, torch.from_numpy(np.array(model)), score=score)
