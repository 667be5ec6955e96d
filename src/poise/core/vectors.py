"""A model is a vector, a cohort is a matrix.

`Layout` maps the tensors of a module to positions of the flat vector. Trainable entries
come first (``[:trainable]``); buffers such as batch-norm statistics follow. Frozen
parameters (``requires_grad=False``) and buffers with infinite entries, such as causal
masks, belong to the task, not to the vector: poise neither sends nor stores them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import prod
from typing import TypeAlias

import torch

from poise.core.errors import require

Vector: TypeAlias = torch.Tensor  # (d,)
Stack: TypeAlias = torch.Tensor  # (m, d)


def is_constant(buffer: torch.Tensor) -> bool:
    """Return whether a buffer has entries that are not finite, and hence no differences.

    >>> is_constant(torch.tensor([0.0, -torch.inf])), is_constant(torch.zeros(2))
    (True, False)
    """
    return not bool(buffer.isfinite().all())


def task_tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the tensors that belong to the task: frozen parameters, constant buffers."""
    frozen = {n: p for n, p in module.named_parameters() if not p.requires_grad}
    state = module.state_dict()
    return frozen | {
        n: b for n, b in module.named_buffers() if n in state and is_constant(b)
    }


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
    """Maps names of tensors to slices of the vector, and back.

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
        """Return a layout of trainable tensors with these shapes."""
        return cls._of(
            [(name, shape, torch.float32) for name, shape in shapes.items()], []
        )

    @classmethod
    def of_entries(
        cls,
        entries: Sequence[tuple[str, tuple[int, ...], torch.dtype]],
        trainable: int,
    ) -> Layout:
        """Return the layout of these tensors, of which the first ones are trained.

        Tensors that begin before position ``trainable`` of the vector are trained.
        """
        starts = accumulate((prod(shape) for _, shape, _ in entries), initial=0)
        trained = sum(start < trainable for start in list(starts)[:-1])
        return cls._of(list(entries[:trained]), list(entries[trained:]))

    @classmethod
    def of_module(cls, module: torch.nn.Module) -> Layout:
        """Return the layout of a module's parameters and persistent buffers.

        Parameters go by name: those of copied ``torch.jit`` modules are plain tensors.
        """
        names = {n for n, _ in module.named_parameters(remove_duplicate=False)}
        trainable = [
            (name, tuple(p.shape), p.dtype)
            for name, p in module.named_parameters()
            if p.requires_grad
        ]
        buffers = [
            (name, tuple(t.shape), t.dtype)
            for name, t in module.state_dict(keep_vars=True).items()
            if isinstance(t, torch.Tensor)
            and not isinstance(t, torch.nn.Parameter)
            and name not in names
            and not is_constant(t)
        ]
        require(bool(trainable), f"{type(module).__name__} has no trainable parameter")
        return cls._of(trainable, buffers)

    @classmethod
    def _of(
        cls,
        trainable: list[tuple[str, tuple[int, ...], torch.dtype]],
        buffers: list[tuple[str, tuple[int, ...], torch.dtype]],
    ) -> Layout:
        entries = []
        position = 0
        for name, shape, dtype in trainable + buffers:
            end = position + prod(shape)
            entries.append(
                LayoutEntry(name, shape, start=position, stop=end, dtype=dtype)
            )
            position = end
        trainable_size = sum(prod(shape) for _, shape, _ in trainable)
        return cls(tuple(entries), trainable_size, size=position)

    @cached_property
    def parameters(self) -> tuple[LayoutEntry, ...]:
        """The trainable entries."""
        return tuple(
            e
            for e in self.entries
            if e.stop <= self.trainable and e.start < self.trainable
        )

    @cached_property
    def buffers(self) -> tuple[LayoutEntry, ...]:
        """Batch-norm statistics and other buffers."""
        return tuple(e for e in self.entries if e not in self.parameters)

    def positions(self, names: Iterable[str]) -> torch.Tensor:
        """Return the positions of these tensors in the vector, in order."""
        wanted = set(names)
        spans = [
            torch.arange(e.start, e.stop) for e in self.entries if e.name in wanted
        ]
        if not spans:
            return torch.zeros(0, dtype=torch.int64)
        return torch.cat(spans)

    def views(self, values: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return views of the named tensors inside a vector (d,) or a stack (m, d)."""
        lead = values.shape[:-1]
        return {
            e.name: values[..., e.start : e.stop].view((*lead, *e.shape))
            for e in self.entries
        }

    def tensors(self, theta: Vector) -> dict[str, torch.Tensor]:
        """Return copies of the named tensors of a vector, each in a type of its own.

        Floating-point tensors have the type of the vector, the others their own.
        """
        named = {}
        views = self.views(theta)
        for entry in self.entries:
            value = views[entry.name]
            if not entry.dtype.is_floating_point:
                value = value.round().to(entry.dtype)
            named[entry.name] = value.clone()
        return named

    def flatten(
        self, tensors: Mapping[str, torch.Tensor], dtype: torch.dtype = torch.float32
    ) -> Vector:
        """Return the vector of these named tensors."""
        return torch.cat(
            [tensors[e.name].detach().reshape(-1).to(dtype) for e in self.entries]
        )
