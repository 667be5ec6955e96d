"""`Perplexity`: between how many classes a model hesitates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F

from poise.core.errors import IncompatibleParts
from poise.metrics.items import class_items, multi_label, numbers
from poise.metrics.metric import State, Summed


@dataclass(frozen=True)
class Perplexity(Summed):
    """``exp(mean cross-entropy)`` over all tokens (samples) of the set.

    >>> metric = Perplexity()
    >>> outputs, labels = torch.zeros(3, 5), torch.tensor([0, 4, 2])
    >>> round(metric.value(metric.update(metric.init(), outputs, labels)), 6)
    5.0
    """

    higher_is_better: ClassVar[bool] = False

    def update(
        self, state: State, outputs: torch.Tensor, targets: torch.Tensor
    ) -> State:
        """Return the state with the losses of these samples added."""
        if multi_label(outputs, targets):
            raise IncompatibleParts(
                "every sample has several labels, not one class", "leave it out"
            )
        scores, labels = class_items(outputs, targets)
        losses = F.cross_entropy(scores, labels, reduction="none")
        total = losses.sum(dtype=torch.float64).cpu()
        return self.merge(state, (total, torch.tensor(len(labels))))

    def value(self, state: State) -> float:
        """Return the perplexity; nan without samples, inf beyond the largest number."""
        if not state or not int(state[1]):
            return math.nan
        return float((state[0] / state[1]).exp())

    def problem(self, targets: torch.Tensor) -> str:
        """Return why these targets have no cross-entropy: they are numbers."""
        return numbers(targets)
