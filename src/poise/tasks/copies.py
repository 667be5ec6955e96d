"""`copy_of`: a copy of a module whose parameters can be trained."""

from __future__ import annotations

import copy
from typing import TypeVar

from torch import nn

AnyModule = TypeVar("AnyModule", bound=nn.Module)


def copy_of(module: AnyModule) -> AnyModule:
    """Return a deep copy of a module.

    PyTorch copies the parameters of a ``torch.jit`` module as results of a computation.
    Here they become parameters again: without a history, and with a gradient.
    """
    made = copy.deepcopy(module)
    for parameter in made.parameters():
        if not parameter.is_leaf:
            parameter.detach_().requires_grad_()
    return made
