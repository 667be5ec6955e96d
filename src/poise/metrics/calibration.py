"""`CalibrationError`: how far the confidence of a model is from its accuracy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from poise.core.errors import IncompatibleParts, require
from poise.metrics.items import class_items, multi_label, numbers
from poise.metrics.metric import State, Summed


@dataclass(frozen=True)
class CalibrationError(Summed):
    """Expected calibration error: ``sum_b n_b/n |accuracy_b - confidence_b|``.

    The confidence is the largest probability of a sample (softmax of the outputs, or
    sigmoid of one logit). Bin b of B has the confidences in ((b-1)/B, b/B].

    Args:
        bins: B, the number of bins of equal width.

    >>> metric = CalibrationError()
    >>> outputs = torch.tensor([[0.8, 0.2], [0.8, 0.2]]).log()
    >>> state = metric.update(metric.init(), outputs, torch.tensor([0, 1]))
    >>> round(metric.value(state), 6)  # the model is 80 % sure and 50 % right
    0.3

    Source: [Guo 2017].
    """

    bins: int = 15

    higher_is_better: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require(
            type(self.bins) is int and self.bins >= 1,
            f"CalibrationError: bins must be at least 1, not {self.bins!r}",
            where="bins",
        )

    def update(
        self, state: State, outputs: torch.Tensor, targets: torch.Tensor
    ) -> State:
        """Return the state with these samples added to their bins."""
        if multi_label(outputs, targets):
            raise IncompatibleParts(
                "every sample has several labels, not one class", "leave it out"
            )
        scores, labels = class_items(outputs, targets)
        confidence, chosen = scores.double().softmax(dim=1).max(dim=1)
        place = (confidence * self.bins).ceil().nan_to_num().long() - 1
        place = place.clamp(0, self.bins - 1)
        right = place[chosen == labels]
        counts = torch.bincount(place, minlength=self.bins)
        hits = torch.bincount(right, minlength=self.bins)
        sure = torch.bincount(place, weights=confidence, minlength=self.bins)
        return self.merge(state, (counts.cpu(), hits.cpu(), sure.cpu()))

    def value(self, state: State) -> float:
        """Return the error; nan without samples."""
        if not state or not int(state[0].sum()):
            return math.nan
        counts, hits, sure = state
        return float((hits - sure).abs().sum() / counts.sum())

    def problem(self, targets: torch.Tensor) -> str:
        """Return why these targets have no accuracy: they are numbers."""
        return numbers(targets)
