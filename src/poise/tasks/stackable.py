"""Whether the functional path computes a module as the row path does, tried on two rows."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch
from torch import nn

from poise.core.trees import Inputs, mapped
from poise.tasks.copies import copy_of
from poise.tasks.dense import has_hooks
from poise.tasks.functional import LANES, FunctionalKernel

CLOSE = {torch.float32: 1e-3, torch.float64: 1e-9}
"""Difference up to which two gradients count as equal, relative to the largest entry."""

PLAIN = (bool, int, float, str, type(None), list, tuple, set)


def obstacle(kernel: FunctionalKernel, module: nn.Module, data: Any) -> str:
    """Return why a module must run one client at a time; empty if it can be stacked.

    ``data`` is (inputs, labels) of two samples.
    """
    x, y = data
    if kernel.alone.random:
        return "it draws random numbers"
    if any(has_hooks(layer) for layer in module.modules()):
        return "it has hooks"
    if changes_itself(module, kernel, x):
        return "its forward changes its state"
    try:
        with warnings.catch_warnings():  # vmap warns of operations without a rule
            warnings.simplefilter("ignore")
            return _difference(kernel, module, x, y)
    except Exception as error:  # vmap and the user's code may raise anything
        lines = str(error).strip().splitlines()
        reason = lines[0] if lines else type(error).__name__
        return f"torch.func cannot stack it ({reason[:100].rstrip('. ')})"


def changes_itself(module: nn.Module, kernel: FunctionalKernel, x: Inputs) -> bool:
    """Whether a training pass changes a tensor or a plain attribute of a module."""
    copied = copy_of(module).to(kernel.dtype).train()
    before = state_of(copied)
    tensors = [t.clone() for t in _tensors(copied)]
    with torch.no_grad():
        kernel.alone.run(copied, x)
    same = all(
        torch.equal(old, new)
        for old, new in zip(tensors, _tensors(copied), strict=True)
    )
    return not same or state_of(copied) != before


def state_of(module: nn.Module) -> dict[str, dict[str, Any]]:
    """Return the plain attributes of all layers by name."""
    return {
        name: {
            key: copy.copy(value)
            for key, value in vars(layer).items()
            if isinstance(value, PLAIN)
        }
        for name, layer in module.named_modules()
    }


def _tensors(module: nn.Module) -> list[torch.Tensor]:
    return [*module.parameters(), *module.buffers()]


def _difference(
    kernel: FunctionalKernel, module: nn.Module, x: Inputs, y: torch.Tensor
) -> str:
    """Compare both paths on two models; each must have the same bits in every lane."""
    layout = kernel.layout
    theta = layout.flatten(module.state_dict(keep_vars=True), kernel.dtype)
    trained = slice(0, layout.trainable)
    models = torch.stack([theta, theta.clone()])
    models[1, trained] += 0.01 * torch.cos(torch.arange(layout.trainable))
    which = torch.tensor([0, 1, 1, 0, 1, 0, 0, 1] * (LANES // 8))
    counts = torch.full((2,), len(y))
    batch: Inputs = mapped(lambda leaf: torch.stack([leaf, leaf]), x)
    labels = torch.stack([y, y])
    wanted = torch.zeros(2, layout.trainable, dtype=kernel.dtype)
    kernel.begin()
    kernel.alone.gradients(
        models.clone(), batch, labels, counts, full=True, generators=None, out=wanted
    )
    stack = models[which]
    found = kernel.stacked(
        stack, mapped(lambda leaf: leaf[which], batch), labels[which]
    )
    if not torch.equal(stack, models[which]):
        return "its forward changes its parameters"
    scale = float(wanted.abs().max())
    for lane, row in enumerate(which.tolist()):
        if not torch.equal(found[lane], found[int(which.tolist().index(row))]):
            return "the bits of a client would depend on the clients beside it"
        error = float((found[lane] - wanted[row]).abs().max())
        if not error <= CLOSE[kernel.dtype] * scale:
            return "its stacked gradient differs from its own"
    return ""
