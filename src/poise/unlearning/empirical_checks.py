"""Empirical checks of unlearning: score models on the unlearned clients' data and watermarks.

`examine` reads the data of the unlearned clients, which `poise.unlearn` does not. Use
it in experiments, or let a client check the result on its own data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from poise.core.federations import FederationLike, TaskLike
from poise.core.types import Floats
from poise.data import Federation
from poise.results import Run
from poise.unlearning.retraining import (
    composition_of,
    federation_without,
    score_name,
    score_on,
)


@dataclass(frozen=True)
class ResidualKnowledge:
    """What a model still knows about the unlearned clients.

    Attributes:
        score: of the model on the clients' data (accuracy, or the loss where there is
            none).
        unmarked: the score on the same samples without the watermark; None without a
            watermark.
    """

    score: float
    unmarked: float | None

    @property
    def recognition(self) -> float | None:
        """The gain in score from the watermark; about 0 for a model that never saw it."""
        if self.unmarked is None:
            return None
        return self.score - self.unmarked


def examine(
    training: Run,
    models: Mapping[str, Run | Floats],
    clients: Sequence[int],
    federation: FederationLike | None = None,
    task: TaskLike | None = None,
) -> dict[str, ResidualKnowledge]:
    """Score models on the data of unlearned clients: before, after, and retrained from scratch.

    Args:
        training: the training run, whose federation has the clients' data.
        models: by name, runs (their newest model) or models (d,).
        clients: the unlearned clients.
        federation: required if the run was made with data given as Python objects.
        task: required if the run was made with a task given as a Python object.

    Source: [Fraboni 2023, §5.5.2, §5.5.3].
    """
    whole = composition_of(training, federation, task)
    others = np.setdiff1d(np.arange(whole.federation.clients), np.asarray(clients))
    marked = federation_without(whole.federation, others)
    oracles = [whole.task.bind(marked, whole.backend.device)]
    if isinstance(marked, Federation):
        plain = tuple(c for c in marked.corruptions if c.name != "watermark")
        if len(plain) < len(marked.corruptions):
            unmarked = replace(marked, corruptions=plain)
            oracles.append(whole.task.bind(unmarked, whole.backend.device))
    score = score_name(oracles[0].metrics)
    results = {}
    for name, model in models.items():
        values = model.model if isinstance(model, Run) else model
        theta = torch.from_numpy(np.array(values))
        scores = [score_on(oracle, theta, score=score) for oracle in oracles]
        without_mark = scores[1] if len(scores) > 1 else None
        results[name] = ResidualKnowledge(scores[0], without_mark)
    return results
