"""Sorted columns: the values of one coordinate, ascending, with cumulated weights.

`average_columns` sorts the updates coordinate by coordinate and applies an average to
each column. It sorts by value and breaks ties by weight, so the order of the clients
changes no bit of a result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import fsum

import numpy as np
import torch

from poise.core import spill
from poise.core.errors import IncompatibleParts
from poise.core.protocols import Aggregator
from poise.core.types import Floats
from poise.core.vectors import Stack, Vector

BLOCK = 2**17  # entries sorted at once; the arrays of a block fit into the cache
BLOCKS_PER_RELEASE = 64  # blocks between releases of the pages of a stack in a file
ALL_BUT_SIGN = 0x7FFFFFFF  # the bits of an int32 without its sign
LOW_HALF = 0xFFFFFFFF  # the lower 32 bits of an int64


@dataclass(frozen=True)
class SortedColumns:
    """A block of columns: one row per coordinate, its updates in ascending order."""

    values: torch.Tensor  # (columns, m)
    # (columns, m) float64: cumulated weight, as a share of the total weight
    reached: torch.Tensor

    @property
    def rounding(self) -> float:
        """Largest rounding error of ``reached``: m units in the last place of 1."""
        return float(self.values.shape[1] * 2.0**-52)


def average_columns(
    aggregator: Aggregator,
    deltas: Stack,
    weights: Floats,
    average: Callable[[SortedColumns], Vector],
) -> Vector:
    """Return O times the mean of every column, (d,); O is the sum of the weights."""
    _refuse_negative(aggregator, weights)
    direction = deltas.new_zeros(deltas.shape[1])
    rows = np.argsort(weights, kind="stable")
    rows = rows[weights[rows] > 0]
    if not len(rows):
        return direction
    total = fsum(weights)
    at = 0
    for columns in _blocks(deltas, rows, weights[rows] / total):
        stop = at + len(columns.values)
        torch.mul(average(columns), total, out=direction[at:stop])
        at = stop
    return direction


def _refuse_negative(aggregator: Aggregator, weights: Floats) -> None:
    for row in np.flatnonzero(weights < 0)[:1]:
        name = type(aggregator).__name__
        raise IncompatibleParts(
            f"{name}: the coefficient of row {row} is negative ({weights[row]})",
            "use WeightedSum(), or a weighting without negative coefficients",
        )


def _blocks(deltas: Stack, rows: np.ndarray, shares: Floats) -> Iterator[SortedColumns]:
    """Yield sorted columns, a block at a time; ``rows`` ascend in their shares."""
    chosen = torch.from_numpy(rows).to(deltas.device)
    weight = torch.from_numpy(shares).to(deltas.device)
    width = max(1, BLOCK // len(rows))
    for at in range(0, deltas.shape[1], width):
        block = deltas[:, at : at + width].index_select(0, chosen)
        if at // width % BLOCKS_PER_RELEASE == 0:
            spill.release(deltas)
        unsorted = block.t().contiguous().add_(0.0)  # adding 0 turns -0.0 into 0.0
        values, ranks = _sorted(unsorted)
        reached = (
            weight.index_select(0, ranks.flatten()).view(ranks.shape).cumsum_(dim=1)
        )
        yield SortedColumns(values, reached)


def _sorted(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Sort every row; return the original positions too. Ties keep their order."""
    if values.dtype == torch.float32 and values.device.type == "cpu":
        return _sorted_by_key(values)
    ordered = torch.sort(values, dim=1, stable=True)
    return ordered.values, ordered.indices


def _sorted_by_key(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Sort ten times as fast as `torch.sort`: NumPy sorts 64-bit keys with positions.

    >>> _sorted_by_key(torch.tensor([[2.0, -1.0, 0.5, -1.0]]))
    (tensor([[-1.0000, -1.0000,  0.5000,  2.0000]]), tensor([[1, 3, 2, 0]]))
    """
    keys = _flipped(values.view(torch.int32)).long() << 32
    keys |= torch.arange(values.shape[1])
    keys.numpy().sort(axis=1)
    return _flipped((keys >> 32).int()).view(torch.float32), keys & LOW_HALF


def _flipped(bits: torch.Tensor) -> torch.Tensor:
    """Map the bits of floats to integers of the same order, and back."""
    return bits ^ ((bits >> 31) & ALL_BUT_SIGN)
