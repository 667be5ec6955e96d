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
    "mse": squared_error,
}
USUAL_METRICS = {"bce": ("accuracy",), "cross-entropy": ("accuracy",), "mse": ("mae",)}
METRICS: dict[str, PerSample] = {"accuracy": accuracy, "mae": absolute_error}
