"""Losses and metrics per sample."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
import torch.nn.functional as F

PerSample: TypeAlias = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""(outputs (n, …), labels (n,)) -> one value per sample, (n,)."""


def cross_entropy(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """``-log softmax(outputs)[label]`` of each sample."""
    return F.cross_entropy(outputs, labels, reduction="none")


def squared_error(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """``|output - target|^2`` of each sample, averaged over its components."""
    return _residual(outputs, labels).square().mean(dim=1)


def accuracy(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """1 if the label has the largest output, else 0."""
    return (outputs.argmax(dim=1) == labels).to(torch.float64)


def absolute_error(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """``|output - target|`` of each sample, averaged over its components."""
    return _residual(outputs, labels).abs().mean(dim=1)


def _residual(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    flat = outputs.reshape(len(outputs), -1)
    return flat - labels.reshape(len(labels), -1).to(flat.dtype)


LOSSES: dict[str, PerSample] = {"cross-entropy": cross_entropy, "mse": squared_error}
METRICS: dict[str, PerSample] = {"accuracy": accuracy, "mae": absolute_error}
