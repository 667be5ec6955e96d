"""Kernels: how the gradients of a stack of models are computed, one kernel per path.

`choose` selects the kernel by the layers of the model alone, never by a measurement, so
that results do not depend on the load of the machine.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import nn

from poise.core.vectors import Layout, Stack, Vector
from poise.tasks.dense import DenseKernel
from poise.tasks.losses import PerSample
from poise.tasks.rowwise import RowKernel


class Kernel(Protocol):
    """Forward and backward passes of a model for stacks of parameter rows."""

    layout: Layout
    block: int  # samples per forward pass when measuring
    random: bool  # training draws random numbers

    def rows(self, batch_size: int) -> int:
        """Return how many clients to put into one call."""

    def begin(self) -> None:
        """Prepare for a piece of work; called before each."""

    def gradients(
        self,
        rows: Stack,
        x: torch.Tensor,
        y: torch.Tensor,
        counts: torch.Tensor,
        full: bool,
        generators: list[torch.Generator] | None,
        out: Stack,
    ) -> None:
        """Write the gradient of each row's mean loss on its batch ``x`` (a, b, …), ``y`` (a, b)."""

    def outputs(self, theta: Vector, x: torch.Tensor) -> torch.Tensor:
        """Return the outputs of one model on samples (n, …), in evaluation mode."""


def choose(
    module: nn.Module,
    loss: str | PerSample,
    example: torch.Tensor,
    dtype: torch.dtype,
    force_rows: bool = False,
) -> Kernel:
    """Return the dense kernel for chains of dense layers with a named loss, else the row kernel."""
    if (
        isinstance(loss, str)
        and DenseKernel.takes(module, example.dim() - 1)
        and not force_rows
    ):
        return DenseKernel(module, loss, dtype)
    return RowKernel(module, loss, example, dtype)
