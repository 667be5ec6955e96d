"""Operation counts of a module, from which the choice of its kernel follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from poise.core.trees import Inputs, first, mapped
from poise.core.vectors import Layout
from poise.tasks.calls import called
from poise.tasks.copies import copy_of

SMALL_OPERATION = 400_000
"""Floating-point operations per call of PyTorch up to which stacking clients pays."""

SMALL_MODEL = 2**17
"""Parameters up to which stacking clients pays."""


@dataclass(frozen=True)
class StepCost:
    """The operations of one forward pass.

    Args:
        parameters: numbers that the client trains.
        calls: calls of PyTorch, views not counted.
        flops: floating-point operations of products and convolutions, per sample.
    """

    parameters: int
    calls: int
    flops: float

    def small(self, width: int) -> bool:
        """Whether a step is so small that its calls cost more than its operations."""
        return self.parameters <= SMALL_MODEL and width <= self.widest

    @property
    def widest(self) -> int:
        """The largest batch for which stacking pays."""
        return int(SMALL_OPERATION * self.calls // max(self.flops, 1.0))


class _Calls(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Count the calls of PyTorch."""

    count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.count += not func.is_view
        return func(*args, **(kwargs or {}))


def step_cost(module: nn.Module, example: Inputs, dtype: torch.dtype) -> StepCost:
    """Count the operations of a training pass on an example.

    >>> step_cost(nn.Linear(3, 2), torch.zeros(2, 3), torch.float32).flops
    12.0
    """
    from torch.utils.flop_counter import FlopCounterMode

    copied = copy_of(module).to(dtype).train()
    x: Inputs = mapped(lambda v: v.to(dtype) if v.is_floating_point() else v, example)
    calls = _Calls()  # type: ignore[no-untyped-call]
    flops = FlopCounterMode(display=False)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        with calls:
            called(copied, x)
        with flops:
            called(copied, x)
    samples = len(first(x))
    total = flops.get_total_flops() / samples
    return StepCost(Layout.of_module(module).trainable, calls.count, total)
