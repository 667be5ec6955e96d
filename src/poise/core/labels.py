"""Labels of several entries per sample, such as tokens and pixels."""

from __future__ import annotations

import torch

IGNORED = -100
"""The class of padding: losses and metrics leave these entries out."""


def mean_counted(values: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Average (n, …) to one value per sample over entries that are not ignored.

    A sample without such entries has the value 0.

    >>> values = torch.tensor([[1.0, 3.0], [5.0, 7.0]])
    >>> mean_counted(values, torch.tensor([[0, 1], [2, -100]])).tolist()
    [2.0, 5.0]
    """
    counted = (labels != IGNORED).flatten(1)
    total = (values.flatten(1) * counted).sum(dim=1)
    return total / counted.sum(dim=1).clamp(min=1)


__all__ = ["IGNORED", "mean_counted"]
