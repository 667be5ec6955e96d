"""How a module is called with its inputs."""

from __future__ import annotations

from typing import cast

import torch
from torch import nn

from poise.core.trees import Inputs


def called(module: nn.Module, x: Inputs) -> torch.Tensor:
    """Return ``module(x)``, ``module(*x)`` for a tuple, or ``module(**x)`` for a dict."""
    if isinstance(x, tuple):
        return cast(torch.Tensor, module(*x))
    if isinstance(x, dict):
        return cast(torch.Tensor, module(**x))
    return cast(torch.Tensor, module(x))
