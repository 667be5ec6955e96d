"""How alike the updates of two clients are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias, get_args

import numpy as np
import torch

from poise.core.types import Floats
from poise.core.vectors import Stack, Vector

Measure: TypeAlias = Literal["arccos", "L2", "L1"]
MEASURES: tuple[Measure, ...] = get_args(Measure)

BLOCK = 2**20  # numbers of a block of rows: it stays in the cache while several vectors are held against it


def to_all(measure: Measure, vector: Vector, rows: Stack, norms: Vector) -> Floats:
    """The measure of one vector against every row, (N,); ``norms`` are the rows' lengths.

    ``arccos``: the angle, and 0 to or from a zero vector; ``L2``: the squared distance; ``L1``: the sum of absolute
    differences.

    >>> g = torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]])
    >>> to_all("arccos", g[0], g, torch.linalg.vector_norm(g, dim=1)).round(4)
    array([0.    , 1.5708, 0.    ])
    """
    step = max(1, BLOCK // max(1, rows.shape[1]))
    blocks = [_ONE[measure](vector, rows[a : a + step]) for a in range(0, len(rows), step)]
    found = torch.cat(blocks).double().cpu()
    if measure == "arccos":
        lengths = norms.double() * float(torch.linalg.vector_norm(vector))
        apart = torch.arccos((found / lengths).clamp(-1.0, 1.0))
        found = torch.where(lengths > 0, apart, torch.zeros_like(apart))
    return np.asarray(found.numpy(), dtype=np.float64)


_ONE: dict[str, Callable[[Vector, Stack], Vector]] = {
    "arccos": lambda v, rows: torch.mv(rows, v),
    "L2": lambda v, rows: (rows - v).square_().sum(dim=1),
    "L1": lambda v, rows: (rows - v).abs_().sum(dim=1),
}
