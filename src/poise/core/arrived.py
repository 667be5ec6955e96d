"""What the server holds of a round when it has aggregated, for gauges to read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import numpy as np
import torch

from poise.core.threads import WARM, Spread, in_turn, row_blocks, rows_of
from poise.core.types import Floats, Ints
from poise.core.vectors import Stack, Vector

Found = TypeVar("Found")

NEAR = 0.05  # of the squares that a distance is the rest of: what they are rounded by grows twentyfold at most
COLUMNS = 2**15  # entries of a row that are added up in its own precision, the rest in double: long sums fall short


@dataclass(frozen=True)
class Arrived:
    """What the server holds when it has aggregated: one row for each contribution, in the record's order."""

    round: int
    clients: Ints  # (m,)
    versions: Ints  # (m,)
    deltas: Stack  # (m, trainable)
    norms: Floats  # (m,)
    omega: Floats  # (m,) the coefficients applied
    direction: Vector  # (trainable,): sum_i omega_i Delta_i
    loss_before: Floats | None = None
    loss_after: Floats | None = None
    models: Mapping[int, Vector] = field(default_factory=dict)  # by version: what they received
    spread: Spread = in_turn  # maps over the workers, which rest while gauges are read

    @cached_property
    def against(self) -> tuple[Floats, Floats]:
        """``Delta_i . D`` and ``|Delta_i|`` of every row."""
        return self._pass(lambda rows: None)[1]

    def look(self, at: Callable[[Stack], Found]) -> list[Found]:
        """What is found in the rows, some of them at a time, in their order.

        `against` is taken on the way where nobody has asked for it yet: what takes the time is to read the rows.
        """
        found, vars(self)["against"] = self._pass(at)
        return found

    def _pass(self, look: Callable[[Stack], Found]) -> tuple[list[Found], tuple[Floats, Floats]]:
        known = vars(self).get("against")

        def of(block: Stack) -> tuple[Found, list[Stack]]:
            few = () if known else row_blocks(block, WARM)  # they are still in the cache when the second is taken
            return look(block), [torch.stack([_products(r, self.direction), _lengths(r)]) for r in few]

        seen = self.spread(of, row_blocks(self.deltas))
        if known is None:
            along, lengths = torch.cat([p for _, both in seen for p in both], dim=1).cpu().numpy()
            known = along, lengths
        return [found for found, _ in seen], known

    @cached_property
    def apart(self) -> Floats:
        """``|Delta_i - C|`` of every row, ``C = D/O``, O the sum of omega; nan where that is 0.

        ``|Delta_i|^2 - 2 Delta_i . C + |C|^2`` needs no further pass. Where it would cancel, the difference is taken.
        """
        total = float(self.omega.sum())
        if total == 0:
            return np.full(len(self.omega), np.nan)
        centre = self.direction / total
        along, lengths = self.against
        whole = lengths**2 + float(_lengths(centre[None])) ** 2
        squares = whole - 2 * along / total
        found = np.sqrt(np.maximum(squares, 0.0))
        near = np.flatnonzero(~(squares > NEAR * whole))
        if len(near):
            few = rows_of(self.deltas)
            blocks = [torch.from_numpy(near[k : k + few]) for k in range(0, len(near), few)]
            taken = self.spread(lambda rows: _lengths(self.deltas[rows] - centre), blocks)
            found[near] = torch.cat(taken).cpu().numpy()
        return np.asarray(found)


def _products(rows: Stack, vector: Vector) -> Vector:
    """``row . vector`` of every row, in double precision."""
    total = rows.new_zeros(len(rows), dtype=torch.float64)
    for span in _spans(len(vector)):
        total += rows[:, span] @ vector[span]
    return total


def _lengths(rows: Stack) -> Vector:
    """The length of every row, in double precision."""
    total = rows.new_zeros(len(rows), dtype=torch.float64)
    for span in _spans(rows.shape[1]):
        total += torch.linalg.vector_norm(rows[:, span], dim=1).double().square_()
    return total.sqrt_()


def _spans(size: int) -> list[slice]:
    return [slice(a, a + COLUMNS) for a in range(0, size, COLUMNS)]
