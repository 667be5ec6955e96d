"""What clients send for the pieces of work they did, before the server makes anything of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from poise.core.types import Floats, Ints

if TYPE_CHECKING:
    import torch
    from _typeshed import DataclassInstance

    from poise.core.vectors import Stack

    Columns = TypeVar("Columns", bound=DataclassInstance)
    Rows: TypeAlias = np.ndarray | torch.Tensor
    Column: TypeAlias = Rows | Mapping[str, Rows] | tuple[str, ...] | None

UPDATE = "update"
"""The name of an update that travels as it is, in a payload."""


@dataclass(frozen=True)
class Arrivals:
    """The answers to m pieces of work, one row each.

    Args:
        payload: the updates as they travelled, one row per piece of work (`poise.engine.wire.Wire`
            reads them).
        samples: how many samples each client declares, (m,).
        steps: how many local steps each made, (m,).
        loss_before: reported losses before the work, (m,); None where nobody asked.
        loss_after: likewise after the work.
        norms: lengths of the updates, (m,); None where the server measures them after decoding.
        client_state: what each client keeps from now on, (m, ...) by name.
        reasons: why each row must not be used, "" where it may; empty where all may.
    """

    payload: Mapping[str, torch.Tensor]
    samples: Ints
    steps: Ints
    loss_before: Floats | None = None
    loss_after: Floats | None = None
    norms: Floats | None = None
    client_state: Mapping[str, Stack] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.samples)

    def rows(self, rows: Ints) -> Arrivals:
        """Some of the rows, in this order."""
        if len(rows) == len(self) and bool((rows == np.arange(len(rows))).all()):
            return self
        return rows_of(self, rows)

    @classmethod
    def join(cls, parts: Sequence[Arrivals]) -> Arrivals:
        """The rows of several answers, one after the other."""
        import torch

        columns: dict[str, Any] = {}
        for name in COLUMNS:
            found = [vars(part)[name] for part in parts]
            columns[name] = None if any(c is None for c in found) else np.concatenate(found)
        for name in TENSORS:
            columns[name] = {
                key: torch.cat([vars(part)[name][key] for part in parts])
                for key in vars(parts[0])[name]
            }
        if any(part.reasons for part in parts):
            columns["reasons"] = tuple(why for p in parts for why in p.reasons or ("",) * len(p))
        return cls(**columns)

    def with_payload(self, payload: Mapping[str, torch.Tensor]) -> Arrivals:
        """The same answers with another payload."""
        return replace(self, payload=payload)


COLUMNS = ("samples", "steps", "loss_before", "loss_after", "norms")
TENSORS = ("payload", "client_state")


def rows_of(value: Columns, rows: Ints) -> Columns:
    """A frozen dataclass of columns, with some rows of each: arrays, tensors, mappings of them,
    tuples of words.

    A field is a column when its metadata do not say ``shared``.
    """
    import torch

    index = torch.from_numpy(rows)
    _, columns = _names(type(value))
    return changed(value, **{name: _taken(vars(value)[name], rows, index) for name in columns})


def changed(value: Columns, **changes: Any) -> Columns:
    """The same frozen dataclass with other values of some fields, and nothing that was cached.

    What `dataclasses.replace` does, in a tenth of the time: an asynchronous run does it for every
    single update.
    """
    every, _ = _names(type(value))
    made = object.__new__(type(value))
    vars(made).update({name: vars(value)[name] for name in every}, **changes)
    return made


@lru_cache
def _names(kind: type) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of all fields of a dataclass, and of those that are columns."""
    every = fields(kind)
    return tuple(f.name for f in every), tuple(
        f.name for f in every if not f.metadata.get("shared")
    )


def _taken(column: Column, rows: Ints, index: torch.Tensor) -> Column:
    if column is None:
        return None
    if isinstance(column, Mapping):
        return {name: _rows_of_one(values, rows, index) for name, values in column.items()}
    if isinstance(column, tuple):
        return tuple(column[k] for k in rows.tolist()) if column else ()
    return _rows_of_one(column, rows, index)


def _rows_of_one(values: Rows, rows: Ints, index: torch.Tensor) -> Rows:
    if isinstance(values, np.ndarray):
        taken: np.ndarray = values[rows]
        return taken
    return values[index]
