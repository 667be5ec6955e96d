"""Whether forgetting worked, seen from outside: by the forgotten clients' own data, and by their
watermark.

This reads the data of the forgotten, which `poise.unlearn` does not; it is for experiments, and for
clients who want to see for themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from poise.core.federations import FederationLike, TaskLike
from poise.core.types import Floats
from poise.data import Federation
from poise.ledger.run import Run
from poise.unlearning.retraining import composition_of, score_of, score_on, without


@dataclass(frozen=True)
class Trace:
    """What a model still knows of some clients.

    Attributes:
        score: of the model on their data (accuracy, or the loss where there is none).
        unmarked: the same on the same samples without their watermark; None where there is none.
    """

    score: float
    unmarked: float | None

    @property
    def recognition(self) -> float | None:
        """How much better it does because it has seen the watermark; about 0 for a model that never
        did.
        """
        return None if self.unmarked is None else self.score - self.unmarked


def examine(
    training: Run,
    models: Mapping[str, Run | Floats],
    clients: Sequence[int],
    federation: FederationLike | None = None,
    task: TaskLike | None = None,
) -> dict[str, Trace]:
    """Look for traces of clients in models: before, after, and after retraining from scratch, side
    by side.

    Args:
        training: the training run, whose federation is looked at.
        models: by name, runs (their newest model) or models (d,).
        clients: who should have been forgotten.
        federation: needed where the run was made with data given as Python objects.
        task: likewise for its task.

    Source: E §5.5.2, §5.5.3.
    """
    whole = composition_of(training, federation, task)
    others = np.setdiff1d(np.arange(whole.federation.clients), np.asarray(clients))
    marked = without(whole.federation, others)
    oracles = [whole.task.bind(marked, whole.backend.device)]
    if isinstance(marked, Federation):
        plain = tuple(c for c in marked.corruptions if c.name != "watermark")
        if len(plain) < len(marked.corruptions):
            oracles.append(
                whole.task.bind(replace(marked, corruptions=plain), whole.backend.device)
            )
    score = score_of(oracles[0].metrics)
    found = {}
    for name, model in models.items():
        theta = torch.from_numpy(np.array(model.model if isinstance(model, Run) else model))
        values = [score_on(oracle, theta, score) for oracle in oracles]
        found[name] = Trace(values[0], values[1] if len(values) > 1 else None)
    return found
