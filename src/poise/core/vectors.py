"""A model is a vector, a cohort is a matrix.

`Layout` says where each tensor of a module lies in the flat vector. What gradients move comes first
(``[:trainable]``); buffers such as batch-norm statistics follow. Frozen parameters
(``requires_grad=False``) belong to the task, not to the vector: they do not travel and are not
stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TypeAlias

import torch

from poise.core.errors import require

Vector: TypeAlias = torch.Tensor  # (d,)
Stack: TypeAlias = torch.Tensor  # (m, d)


@dataclass(frozen=True)
class LayoutEntry:
    """One named tensor inside the vector: positions ``start … stop``."""

    name: str
    shape: tuple[int, ...]
    start: int
    stop: int
    dtype: torch.dtype


@dataclass(frozen=True)
class Layout:
    """Names to slices and back.

    >>> layout = Layout.of_module(torch.nn.Linear(3, 2))
    >>> layout.size, layout.trainable
    (8, 8)
    >>> stack = torch.zeros(5, layout.size)
    >>> {name: tuple(view.shape) for name, view in layout.views(stack).items()}
    {'weight': (5, 2, 3), 'bias': (5, 2)}
    """

    entries: tuple[LayoutEntry, ...]
    trainable: int
    size: int

    @classmethod
    def of_shapes(cls, shapes: Mapping[str, tuple[int, ...]]) -> Layout:
        """A layout of trainable tensors with these shapes."""
        return cls._of([(name, shape, torch.float32) for name, shape in shapes.items()], [])

    @classmethod
    def of_module(cls, module: torch.nn.Module) -> Layout:
        """The layout of a module's trainable parameters and persistent buffers."""
        moving = [
            (name, tuple(p.shape), p.dtype)
            for name, p in module.named_parameters()
            if p.requires_grad
        ]
        resting = [
            (name, tuple(t.shape), t.dtype)
            for name, t in module.state_dict(keep_vars=True).items()
            if isinstance(t, torch.Tensor) and not isinstance(t, torch.nn.Parameter)
        ]
        require(bool(moving), f"{type(module).__name__} has no trainable parameter")
        return cls._of(moving, resting)

    @classmethod
    def _of(
        cls,
        moving: list[tuple[str, tuple[int, ...], torch.dtype]],
        resting: list[tuple[str, tuple[int, ...], torch.dtype]],
    ) -> Layout:
        entries, at = [], 0
        for name, shape, dtype in moving + resting:
            entries.append(LayoutEntry(name, shape, at, at + prod(shape), dtype))
            at += prod(shape)
        trainable = sum(prod(shape) for _, shape, _ in moving)
        return cls(tuple(entries), trainable, at)

    @cached_property
    def parameters(self) -> tuple[LayoutEntry, ...]:
        """The entries that gradients move."""
        return tuple(
            e for e in self.entries if e.stop <= self.trainable and e.start < self.trainable
        )

    @cached_property
    def buffers(self) -> tuple[LayoutEntry, ...]:
        """Batch-norm statistics and other buffers."""
        return tuple(e for e in self.entries if e not in self.parameters)

    def positions(self, names: Iterable[str]) -> torch.Tensor:
        """Where the entries of these tensors lie in the vector, in order."""
        wanted = set(names)
        spans = [torch.arange(e.start, e.stop) for e in self.entries if e.name in wanted]
        return torch.cat(spans) if spans else torch.zeros(0, dtype=torch.int64)

    def views(self, values: torch.Tensor) -> dict[str, torch.Tensor]:
        """The named tensors inside a vector (d,) or a stack (m, d), as views."""
        lead = values.shape[:-1]
        return {e.name: values[..., e.start : e.stop].view((*lead, *e.shape)) for e in self.entries}

    def flatten(
        self, tensors: Mapping[str, torch.Tensor], dtype: torch.dtype = torch.float32
    ) -> Vector:
        """The vector that holds these named tensors."""
        return torch.cat([tensors[e.name].detach().reshape(-1).to(dtype) for e in self.entries])
