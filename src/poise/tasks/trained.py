"""A module with the weights of a trained model, made without the data."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import nn

from poise.core.errors import IncompatibleParts
from poise.core.samples import Samples
from poise.core.vectors import Layout, Vector
from poise.tasks.oracle import frozen_hash


class TrainedModule(NamedTuple):
    """A module in evaluation mode, with the weights of a model.

    Args:
        module: the module.
        layout: which tensor each entry of the model's vector belongs to.
        frozen: a hash of the frozen parameters; empty if there are none.
    """

    module: nn.Module
    layout: Layout
    frozen: str


@runtime_checkable
class MakesModule(Protocol):
    """A task that makes modules from the vectors of its models."""

    def trained(self, samples: Samples, theta: Vector) -> TrainedModule:
        """Return the module of a model; only the form of the samples matters."""


def loaded(module: nn.Module, theta: Vector, dtype: torch.dtype) -> TrainedModule:
    """Load a vector into a module: trained parameters, and buffers such as statistics.

    >>> made = loaded(nn.Linear(2, 1), torch.tensor([1.0, 2.0, 3.0]), torch.float32)
    >>> made.module(torch.ones(1, 2)).item()
    6.0
    """
    frozen = frozen_hash(module)
    layout = Layout.of_module(module)
    if layout.size != len(theta):
        raise IncompatibleParts(
            f"the model of the run has {len(theta)} entries, the module of the task "
            f"{layout.size}",
            "give the task that the run began with",
            where=("task",),
        )
    module = module.to(dtype).eval()
    places = module.state_dict(keep_vars=True)
    with torch.no_grad():
        for name, value in layout.tensors(theta).items():
            places[name].copy_(value)
    return TrainedModule(module, layout, frozen)
