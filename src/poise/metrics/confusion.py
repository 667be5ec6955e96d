"""`F1`, `BalancedAccuracy`, `Dice` and `IoU`: from counts of right and wrong classes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from poise.core.errors import IncompatibleParts, require
from poise.metrics.items import class_items, multi_label, numbers
from poise.metrics.metric import State, Summed


class Counted(Summed):
    """Base: per class, the items that are right, predicted and true, (C,) each."""

    higher_is_better: ClassVar[bool] = True

    def update(
        self, state: State, outputs: torch.Tensor, targets: torch.Tensor
    ) -> State:
        """Return the state with the counts of these samples added."""
        if multi_label(outputs, targets):
            predicted = outputs.detach() > 0
            true = targets > 0
            kinds = (predicted & true, predicted, true)
            return self.merge(state, tuple(kind.sum(dim=0).cpu() for kind in kinds))
        scores, labels = class_items(outputs, targets)
        chosen = scores.argmax(dim=1)
        size = scores.shape[1]
        items = (labels[chosen == labels], chosen, labels)
        counts = tuple(torch.bincount(item, minlength=size).cpu() for item in items)
        return self.merge(state, counts)

    def problem(self, targets: torch.Tensor) -> str:
        """Return why these targets cannot be counted: they are no classes."""
        if found := numbers(targets):
            return found
        return "" if bool((targets >= 0).any()) else "there are no labels"


@dataclass(frozen=True)
class F1(Counted):
    """F1 = 2 right / (predicted + true), of every class or of all together.

    Args:
        average: ``"macro"`` is the mean over the classes (labels) that occur among the
            targets or the predictions; ``"micro"`` adds the counts of all classes first.

    >>> metric = F1()
    >>> outputs, labels = torch.tensor([1.0, -1.0, 1.0]), torch.tensor([1, 0, 0])
    >>> round(metric.value(metric.update(metric.init(), outputs, labels)), 6)
    0.666667
    """

    average: Literal["macro", "micro"] = "macro"

    def __post_init__(self) -> None:
        require(
            self.average in ("macro", "micro"),
            f"F1: unknown average {self.average!r}",
            "known: macro, micro",
            where="average",
        )

    def value(self, state: State) -> float:
        """Return the mean F1; nan without samples."""
        if not state:
            return math.nan
        right, predicted, true = state
        if self.average == "micro":
            right, predicted, true = (kind.sum()[None] for kind in state)
        return _mean_ratio(2 * right, predicted + true)


@dataclass(frozen=True)
class BalancedAccuracy(Counted):
    """The mean over the classes that occur of the share of their items that is right.

    >>> metric = BalancedAccuracy()
    >>> outputs, labels = torch.tensor([1.0, -1.0, 1.0]), torch.tensor([1, 0, 0])
    >>> metric.value(metric.update(metric.init(), outputs, labels))
    0.75
    """

    def update(
        self, state: State, outputs: torch.Tensor, targets: torch.Tensor
    ) -> State:
        """Return the state with the counts of these samples added."""
        if multi_label(outputs, targets):
            raise IncompatibleParts(
                "every sample has several labels, not one class", "use 'f1'"
            )
        return super().update(state, outputs, targets)

    def value(self, state: State) -> float:
        """Return the mean recall; nan without samples."""
        if not state:
            return math.nan
        right, _, true = state
        return _mean_ratio(right, true)


class Overlap(Counted):
    """Base: counts of pixels, whose class 0 is the background."""

    def update(
        self, state: State, outputs: torch.Tensor, targets: torch.Tensor
    ) -> State:
        """Return the state with the counts of these samples added."""
        if multi_label(outputs, targets):
            raise IncompatibleParts(
                f"outputs (n, {targets.shape[1]}) are separate labels, not a mask",
                f"use 'f1', or return (n, 1, {targets.shape[1]}) for a mask",
            )
        return super().update(state, outputs, targets)

    def problem(self, targets: torch.Tensor) -> str:
        """Return why these targets have no overlap: numbers, or no foreground."""
        if found := super().problem(targets):
            return found
        return "" if bool((targets > 0).any()) else "the masks have no foreground"

    def foreground(self, state: State, background: bool) -> State:
        """Return the counts of the classes that count."""
        if background or len(state[0]) < 2:
            return state
        return tuple(kind[1:] for kind in state)


@dataclass(frozen=True)
class Dice(Overlap):
    """Dice = 2 |A and B| / (|A| + |B|) of all pixels of the set: the mean over classes.

    Classes that occur in no mask and no prediction are left out.

    Args:
        background: whether class 0 counts as well.

    >>> metric = Dice()
    >>> logits, mask = torch.tensor([[[1.0, 1.0, -1.0]]]), torch.tensor([[[1, 0, 0]]])
    >>> round(metric.value(metric.update(metric.init(), logits, mask)), 6)
    0.666667
    """

    background: bool = False

    def value(self, state: State) -> float:
        """Return the mean Dice coefficient; nan if there is no foreground."""
        if not state:
            return math.nan
        right, predicted, true = self.foreground(state, self.background)
        return _mean_ratio(2 * right, predicted + true)


@dataclass(frozen=True)
class IoU(Overlap):
    """Intersection over union |A and B| / |A or B| of all pixels: the mean over classes.

    Classes that occur in no mask and no prediction are left out.

    Args:
        background: whether class 0 counts as well.

    >>> metric = IoU()
    >>> logits, mask = torch.tensor([[[1.0, 1.0, -1.0]]]), torch.tensor([[[1, 0, 0]]])
    >>> metric.value(metric.update(metric.init(), logits, mask))
    0.5
    """

    background: bool = False

    def value(self, state: State) -> float:
        """Return the mean intersection over union; nan if there is no foreground."""
        if not state:
            return math.nan
        right, predicted, true = self.foreground(state, self.background)
        return _mean_ratio(right, predicted + true - right)


def _mean_ratio(above: torch.Tensor, below: torch.Tensor) -> float:
    """The mean of above/below over the entries with below > 0; nan if there is none."""
    pairs = zip(above.tolist(), below.tolist(), strict=True)
    ratios = [a / b for a, b in pairs if b]
    return math.fsum(ratios) / len(ratios) if ratios else math.nan
