"""The outputs of a module: one tensor, or tensors in tuples, lists, dicts and dataclasses."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any, Protocol, runtime_checkable

import torch


@runtime_checkable
class _Named(Protocol):
    """The members of a named tuple that poise calls."""

    def _asdict(self) -> dict[str, Any]:
        """Return the parts by name."""

    def _replace(self, **values: Any) -> Any:
        """Return a copy with other parts."""


def each_tensor(f: Callable[[torch.Tensor], torch.Tensor], outputs: Any) -> Any:
    """Apply a function to every tensor and keep the form; anything else stays as it is.

    >>> each_tensor(lambda t: t + 1, (torch.tensor(1), {"note": "a", "rest": [torch.tensor(2)]}))
    (tensor(2), {'note': 'a', 'rest': [tensor(3)]})
    """
    if isinstance(outputs, torch.Tensor):
        return f(outputs)
    if isinstance(outputs, dict):
        changed = copy.copy(outputs)  # keeps attributes of subclasses
        for name, value in outputs.items():
            changed[name] = each_tensor(f, value)
        return changed
    if isinstance(outputs, tuple) and isinstance(outputs, _Named):
        parts = outputs._asdict().items()
        return outputs._replace(**{name: each_tensor(f, part) for name, part in parts})
    if isinstance(outputs, tuple | list):
        return type(outputs)(each_tensor(f, value) for value in outputs)
    if is_dataclass(outputs) and not isinstance(outputs, type):
        made = [field.name for field in fields(outputs) if field.init]
        values = {name: each_tensor(f, getattr(outputs, name)) for name in made}
        return replace(outputs, **values)
    return outputs
