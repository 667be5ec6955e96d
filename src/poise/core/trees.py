"""The inputs of a model: one tensor, or several in a tuple or a dict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch

Inputs: TypeAlias = torch.Tensor | tuple[torch.Tensor, ...] | dict[str, torch.Tensor]
"""One tensor, or a tuple or dict of tensors with one row per sample each."""


def leaves(x: Any) -> tuple[Any, ...]:
    """Return the parts of a tuple or dict in order; anything else is one part.

    >>> leaves({"a": 1, "b": 2}), leaves(3)
    ((1, 2), (3,))
    """
    if isinstance(x, tuple):
        return x
    if isinstance(x, dict):
        return tuple(x.values())
    return (x,)


def mapped(f: Callable[[Any], Any], x: Any) -> Any:
    """Apply a function to every part and keep the form.

    >>> mapped(lambda part: part + 1, {"a": 1, "b": 2})
    {'a': 2, 'b': 3}
    """
    if isinstance(x, tuple):
        return tuple(f(part) for part in x)
    if isinstance(x, dict):
        return {name: f(part) for name, part in x.items()}
    return f(x)


def first(x: Any) -> Any:
    """Return the first part.

    >>> first((1, 2)), first(3)
    (1, 3)
    """
    return leaves(x)[0]


def row_of(x: Inputs, k: int, count: int) -> Inputs:
    """Return the first ``count`` samples of row k of a stack (a, b, …)."""
    if isinstance(x, torch.Tensor):
        return x[k, :count]
    row: Inputs = mapped(lambda part: part[k, :count], x)
    return row


__all__ = ["Inputs", "first", "leaves", "mapped", "row_of"]
