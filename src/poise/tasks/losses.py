"""Losses and metrics per sample."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
import torch.nn.functional as F

from poise.core.labels import IGNORED, mean_counted

PerSample: TypeAlias = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""(outputs (n, …), labels (n, …)) -> one value per sample, (n,)."""


@dataclass(frozen=True)
class Averaged:
    """A function whose values per entry, (n, …), are averaged to one per sample."""

    function: PerSample

    def __call__(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return one value per sample, (n,)."""
        return self.function(outputs, labels).flatten(1).mean(dim=1)


def cross_entropy(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """``-log softmax(outputs)[label]`` of each sample.

    With outputs (n, C, …) and labels (n, …) it is the mean over the sample's labels
    other than -100.
    """
    if labels.dim() == 1:
        return F.cross_entropy(outputs, labels, reduction="none")
    values = F.cross_entropy(outputs, labels, reduction="none", ignore_index=IGNORED)
    return mean_counted(values, labels)


def double_softmax(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """``-log softmax(softmax(outputs))[label]`` of each sample.

    This is what a model trains on that ends in a softmax layer, under a cross-entropy
    that applies a softmax of its own. The probabilities lie between 0 and 1, so that the
    loss lies between ``log(1 + (C - 1) / e)`` and ``log(e + C - 1)`` for C classes (1.46
    and 2.46 for 10) and its gradients are small. It is not convex.
    """
    return cross_entropy(outputs.softmax(dim=1), labels)


def binary_cross_entropy(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """``-y log s - (1 - y) log(1 - s)``, s = sigmoid(output), averaged over the labels."""
    flat = outputs.reshape(len(outputs), -1)
    wanted = labels.reshape(len(labels), -1).to(flat.dtype)
    values = F.binary_cross_entropy_with_logits(flat, wanted, reduction="none")
    return values.mean(dim=1)


def squared_error(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """``|output - target|^2`` of each sample, averaged over its components."""
    return _residual(outputs, labels).square().mean(dim=1)


def accuracy(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """1 if the label has the largest output, else 0; the mean over several labels.

    Floating labels are truth values of their own, and so are classes 0 and 1 with one
    output per label: an output above 0 means 1.
    """
    if labels.is_floating_point() or outputs.numel() == labels.numel():
        right = (outputs > 0).reshape(labels.shape) == (labels > 0.5)
    else:
        right = outputs.argmax(dim=1) == labels
    values = right.to(torch.float64)
    if labels.is_floating_point():
        return values.reshape(len(labels), -1).mean(dim=1)
    if labels.dim() == 1:
        return values
    return mean_counted(values, labels)


def absolute_error(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """``|output - target|`` of each sample, averaged over its components."""
    return _residual(outputs, labels).abs().mean(dim=1)


def _residual(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    flat = outputs.reshape(len(outputs), -1)
    return flat - labels.reshape(len(labels), -1).to(flat.dtype)


LOSSES: dict[str, PerSample] = {
    "bce": binary_cross_entropy,
    "cross-entropy": cross_entropy,
    "double-softmax": double_softmax,
    "mse": squared_error,
}
CLASS_LOSSES = ("cross-entropy", "double-softmax")
"""Losses of one output per class."""

USUAL_METRICS = {
    "bce": ("accuracy",),
    "cross-entropy": ("accuracy",),
    "double-softmax": ("accuracy",),
    "mse": ("mae",),
}
METRICS: dict[str, PerSample] = {"accuracy": accuracy, "mae": absolute_error}
