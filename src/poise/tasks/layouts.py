"""Memory layouts: an optimisation that must not change what a module computes."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from poise.core.trees import Inputs, leaves, mapped
from poise.tasks.calls import called
from poise.tasks.copies import copy_of
from poise.tasks.layers import use_generator

CLOSE = 1e-3
"""Difference up to which two gradients count as equal, relative to the largest entry."""


def same_in_channels_last(module: nn.Module, x: Inputs) -> bool:
    """Whether a module gives the same outputs and gradients in channels-last memory.

    A module that calls ``x.view`` after a convolution fails there. The training pass is
    only tried, because random layers draw other masks in another layout.
    """
    plain = copy_of(module).eval()
    other = copy_of(module)
    other.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    trained = copy_of(other).train()  # this pass may change statistics
    images: Inputs = mapped(_channels_last, x)
    use_generator(torch.Generator().manual_seed(0))
    with torch.random.fork_rng(devices=[]):
        try:
            _passes(trained, images)
            found = _passes(other.eval(), images)
        except Exception:  # the module is the user's: it may raise anything
            return False
        wanted = _passes(plain, x)
    scale = max(float(values.abs().max()) for values in wanted)
    return all(
        float((a - b).abs().max()) <= CLOSE * scale
        for a, b in zip(found, wanted, strict=True)
    )


def _passes(module: nn.Module, x: Inputs) -> list[torch.Tensor]:
    """Return the outputs of a module, and the gradients of their weighted sum."""
    moving = [p for p in module.parameters() if p.requires_grad]
    with torch.enable_grad():
        outputs: tuple[Any, ...] = leaves(called(module, x))
        total = torch.zeros(())
        for out in outputs:
            if isinstance(out, torch.Tensor) and out.requires_grad:
                weights = torch.cos(torch.arange(out.numel())).view(out.shape)
                total = total + (out * weights).sum()
        gradients = torch.autograd.grad(total, moving, materialize_grads=True)
    return [total.detach(), *gradients]


def _channels_last(x: torch.Tensor) -> torch.Tensor:
    if x.dim() == 4:
        return x.contiguous(memory_format=torch.channels_last)
    return x
