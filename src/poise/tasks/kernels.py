"""Kernels: how the gradients of a stack of models are computed, one kernel per path.

`choose` selects the kernel by the layers of the model and its operation counts, never
by a measurement, so that results do not depend on the load of the machine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeAlias

import torch
from torch import nn

from poise.core.errors import IncompatibleParts
from poise.core.trees import Inputs
from poise.core.vectors import Layout, Stack, Vector
from poise.tasks.chains import chain_of
from poise.tasks.dense import DenseKernel
from poise.tasks.functional import FunctionalKernel
from poise.tasks.losses import PerSample
from poise.tasks.operations import SMALL_MODEL, SMALL_OPERATION, StepCost, step_cost
from poise.tasks.rowwise import RowKernel
from poise.tasks.stackable import obstacle

Path: TypeAlias = Literal["rows", "dense", "functional"]
PATHS = ("rows", "dense", "functional")
TITLES: dict[Path, str] = {
    "rows": "rows (one client at a time)",
    "dense": "dense (batched products)",
    "functional": "functional (vmap)",
}
FORCED = "the task gives this path"


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
        x: Inputs,
        y: torch.Tensor,
        counts: torch.Tensor,
        full: bool,
        generators: list[torch.Generator] | None,
        out: Stack,
    ) -> None:
        """Write the gradient of each row's mean loss on its batch ``x`` (a, b, …), ``y`` (a, b)."""

    def outputs(self, theta: Vector, x: Inputs) -> torch.Tensor:
        """Return the outputs of one model on samples (n, …), in evaluation mode."""


@dataclass(frozen=True)
class Chosen:
    """A kernel, its name, and why it is used."""

    kernel: Kernel
    path: Path
    because: str

    def __str__(self) -> str:
        return f"kernel: {TITLES[self.path]}, because {self.because}"


@dataclass(frozen=True)
class Model:
    """A module with its loss, and what to try it on.

    Args:
        module: the module with its initial weights.
        loss: a name, or a function.
        example: the inputs of two samples.
        labels: their labels.
        dtype: the precision of the model.
        autocast: the number type of mixed precision, or None.
    """

    module: nn.Module
    loss: str | PerSample
    example: Inputs
    labels: torch.Tensor
    dtype: torch.dtype
    autocast: torch.dtype | None = None

    def rows(self) -> RowKernel:
        """Return the row kernel."""
        return RowKernel(
            self.module, self.loss, self.example, self.dtype, self.autocast
        )

    def functional(self, cost: StepCost | None) -> FunctionalKernel:
        """Return the functional kernel."""
        return FunctionalKernel(
            self.module, self.loss, self.example, self.dtype, cost=cost
        )


def choose(model: Model, path: Path | None, built_in: bool) -> Chosen:
    """Return the kernel of a model: the given path, or the one that the rule chooses.

    0. Mixed precision: rows.
    1. Chains of dense layers with a named loss: dense.
    2. Built-in models: rows.
    3. Modules of at most 2^17 parameters whose calls of PyTorch are small (up to 400,000
       operations per call in a batch), and which ``torch.func`` stacks: functional.
    4. All others: rows.
    """
    if path == "rows":
        return Chosen(model.rows(), "rows", FORCED)
    if model.autocast is not None:
        return _mixed(model, path)
    if path == "functional":
        return _functional(model)
    dense = _dense(model)
    if dense is not None:
        forced = path == "dense"
        return replace(dense, because=FORCED) if forced else dense
    if path == "dense":
        raise IncompatibleParts(
            "Task: path='dense' needs a chain of dense layers and a named loss",
            "leave path out",
            where=("path",),
        )
    if built_in:
        return Chosen(model.rows(), "rows", "the model is built in and not dense")
    return _by_cost(model)


def _mixed(model: Model, path: Path | None) -> Chosen:
    """Return the row kernel in mixed precision; no other kernel has it."""
    if path is not None:
        raise IncompatibleParts(
            f"Task: path={path!r} has no mixed precision",
            "leave path or autocast out",
            where=("path",),
        )
    return Chosen(model.rows(), "rows", "the task asks for mixed precision")


def _dense(model: Model) -> Chosen | None:
    """Return the dense kernel for chains of dense layers with a named loss."""
    if not isinstance(model.loss, str) or not isinstance(model.example, torch.Tensor):
        return None
    module = model.module
    dimensions = model.example.dim() - 1
    if DenseKernel.takes(module, dimensions):
        kernel = DenseKernel(module, model.loss, model.dtype)
        return Chosen(kernel, "dense", "the layers are a dense chain")
    if type(module) is nn.Sequential:
        return None
    chain = chain_of(module, tuple(model.example.shape[1:]))
    if chain is None or not DenseKernel.takes(module, dimensions, chain):
        return None
    traced = DenseKernel(module, model.loss, model.dtype, layers=chain)
    return Chosen(traced, "dense", "forward is a chain of dense layers")


def _functional(model: Model) -> Chosen:
    """Return the functional kernel for every batch width, or raise."""
    kernel = model.functional(cost=None)
    reason = obstacle(kernel, model.module, (model.example, model.labels))
    if reason:
        raise IncompatibleParts(
            f"Task: path='functional' does not fit {type(model.module).__name__}: "
            f"{reason}",
            "leave path out",
            where=("path",),
        )
    return Chosen(kernel, "functional", FORCED)


def _by_cost(model: Model) -> Chosen:
    """Return the functional kernel if stacking pays and works, else the row kernel."""
    cost = step_cost(model.module, model.example, model.dtype)
    if cost.parameters > SMALL_MODEL:
        reason = f"{cost.parameters:,} parameters are more than {SMALL_MODEL:,}"
        return Chosen(model.rows(), "rows", reason)
    if not cost.small(1):
        reason = f"one sample takes more than {SMALL_OPERATION:,} operations per call"
        return Chosen(model.rows(), "rows", reason)
    kernel = model.functional(cost)
    reason = obstacle(kernel, model.module, (model.example, model.labels))
    if reason:
        return Chosen(kernel.alone, "rows", reason)
    return Chosen(
        kernel,
        "functional",
        f"a call takes at most {SMALL_OPERATION:,} operations in batches of up to "
        f"{cost.widest:,}; larger and short batches run one client at a time",
    )
