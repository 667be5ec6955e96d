"""How gradients of a stack of models are computed: one kernel per path.

Which kernel a model gets is decided by its layers alone (`choose`), never by a measurement, so that
results do not depend on the machine's mood.
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
        """How many clients to put into one call."""

    def begin(self) -> None:
        """Called before a piece of work."""

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
        """Gradients of the mean loss of each row on its own batch ``x`` (a, b, …), ``y`` (a, b)."""

    def outputs(self, theta: Vector, x: torch.Tensor) -> torch.Tensor:
        """The outputs of one model on samples (n, …), with training behaviour switched off."""


def choose(
    module: nn.Module,
    loss: str | PerSample,
    example: torch.Tensor,
    dtype: torch.dtype,
    force_rows: bool = False,
) -> Kernel:
    """The batched kernel for chains of dense layers with a known loss, the row kernel for all
    else.
    """
    if isinstance(loss, str) and DenseKernel.takes(module, example.dim() - 1) and not force_rows:
        return DenseKernel(module, loss, dtype)
    return RowKernel(module, loss, example, dtype)
