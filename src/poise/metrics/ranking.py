"""`AUROC` and `AUPRC`: how well scores rank the samples of a class before the others."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import torch

from poise.metrics.items import class_items, multi_label, numbers
from poise.metrics.metric import Collected, State, joined

Counts: TypeAlias = tuple[torch.Tensor, torch.Tensor]
"""Positives and negatives at every distinct score, from the lowest score on."""


class Ranking(Collected, ABC):
    """Base: the mean over columns (labels, or a class against the rest)."""

    higher_is_better: ClassVar[bool] = True

    def update(
        self, state: State, outputs: torch.Tensor, targets: torch.Tensor
    ) -> State:
        """Return the state with the scores and the truth of these samples, (m, columns)."""
        if multi_label(outputs, targets):
            scores = outputs.detach().double()
            truth = targets > 0
        else:
            scores, truth = _against_rest(*class_items(outputs, targets))
        return (*state, scores.cpu(), truth.cpu())

    def value(self, state: State) -> float:
        """Return the mean over the columns that have both kinds of samples; nan if none has."""
        if not state:
            return math.nan
        scores, truth = joined(state)
        if bool(scores.isnan().any()):
            return math.nan
        values = []
        for column, positive in zip(scores.T, truth.T, strict=True):
            counts = _counts(column, positive)
            if all(int(kind.sum()) for kind in counts):
                values.append(self.of_counts(counts))
        return math.fsum(values) / len(values) if values else math.nan

    @abstractmethod
    def of_counts(self, counts: Counts) -> float:
        """Return the value of one column."""

    def problem(self, targets: torch.Tensor) -> str:
        """Return why these targets have no ranking: one class only."""
        if found := numbers(targets):
            return found
        known = targets[targets >= 0]
        if not len(known):
            return "there are no labels"
        if bool((known == known[0]).all()):
            return (
                f"all {len(known)} labels are {int(known[0])}, two classes are needed"
            )
        # truth values (n, K); whole numbers (n, T) may be classes of tokens
        separate = targets.is_floating_point() and targets.dim() == 2
        if separate and bool((targets == targets[:1]).all()):
            return (
                f"each of the {targets.shape[1]} labels is the same for all "
                f"{len(targets)} samples"
            )
        return ""


def _against_rest(
    scores: torch.Tensor, labels: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return one column per class, or a single one for two classes."""
    scores = scores.double()
    if scores.shape[1] == 2:
        return scores[:, 1:] - scores[:, :1], labels[:, None] == 1
    classes = torch.arange(scores.shape[1], device=labels.device)
    return scores.softmax(dim=1), labels[:, None] == classes


def _counts(scores: torch.Tensor, positive: torch.Tensor) -> Counts:
    distinct, position = torch.unique(scores, return_inverse=True)
    size = len(distinct)
    return (
        torch.bincount(position[positive], minlength=size),
        torch.bincount(position[~positive], minlength=size),
    )


@dataclass(frozen=True)
class AUROC(Ranking):
    """Area under the ROC curve: P(score of a positive > score of a negative), ties half.

    Two classes: of class 1. More classes: the mean of every class against the rest, by
    the softmax of the outputs. Several labels: the mean over the labels. Classes and
    labels without positives, or without negatives, are left out of the mean.

    >>> metric = AUROC()
    >>> outputs, labels = torch.tensor([0.1, 0.4, 0.4, 0.8]), torch.tensor([0, 0, 1, 1])
    >>> metric.value(metric.update(metric.init(), outputs, labels))
    0.875
    """

    def of_counts(self, counts: Counts) -> float:
        """Return the share of pairs in the right order; a tie counts half."""
        positives, negatives = counts
        below = negatives.cumsum(0) - negatives
        twice = int((positives * (2 * below + negatives)).sum())
        return twice / (2 * int(positives.sum()) * int(negatives.sum()))


@dataclass(frozen=True)
class AUPRC(Ranking):
    """Average precision: the area under the precision-recall curve, as a step function.

    ``sum_k (R_k - R_(k-1)) P_k`` over the distinct scores, from the highest on. Classes
    and labels as in `AUROC`.

    >>> metric = AUPRC()
    >>> outputs, labels = torch.tensor([0.1, 0.4, 0.35, 0.8]), torch.tensor([0, 0, 1, 1])
    >>> round(metric.value(metric.update(metric.init(), outputs, labels)), 6)
    0.833333
    """

    def of_counts(self, counts: Counts) -> float:
        """Return the sum over thresholds of precision times the gain of recall."""
        positives, negatives = (kind.flip(0) for kind in counts)
        found = positives.cumsum(0).double()
        precision = found / (positives + negatives).cumsum(0)
        return float((positives * precision).sum() / found[-1])
