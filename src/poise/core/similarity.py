"""How alike the updates of two clients are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias, get_args

import numpy as np
import torch

from poise.core.types import Floats
from poise.core.vectors import Stack, Vector

Measure: TypeAlias = Literal["arccos", "L2", "L1"]
MEASURES: tuple[Measure, ...] = get_args(Measure)

BLOCK = 2**20
"""Entries of a block of rows that stays in the cache for several comparisons."""


def to_all(
    measure: Measure, vectors: Sequence[Vector], rows: Stack, norms: Vector
) -> Floats:
    """Compare each vector with every row, (k, N); ``norms`` are those of the rows.

    ``arccos``: the angle, and 0 to or from a zero vector; ``L2``: the squared distance;
    ``L1``: the sum of absolute differences. The value of a pair does not depend on the
    other vectors.

    >>> g = torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]])
    >>> to_all("arccos", [g[0]], g, torch.linalg.vector_norm(g, dim=1)).round(4)
    array([[0.    , 1.5708, 0.    ]])
    """
    values = torch.empty(len(vectors), len(rows), dtype=torch.float64)
    step = max(1, BLOCK // max(1, rows.shape[1]))
    for start in range(0, len(rows), step):
        block = slice(start, start + step)
        for k, vector in enumerate(vectors):
            values[k, block] = _COMPARE[measure](vector, rows[block])
    if measure == "arccos":
        vector_norms = torch.tensor(
            [float(torch.linalg.vector_norm(v)) for v in vectors], dtype=torch.float64
        )
        lengths = vector_norms[:, None] * norms.double()
        angles = torch.arccos((values / lengths).clamp(-1.0, 1.0))
        values = torch.where(lengths > 0, angles, torch.zeros_like(angles))
    return np.asarray(values.numpy(), dtype=np.float64)


_COMPARE: dict[str, Callable[[Vector, Stack], Vector]] = {
    "arccos": lambda v, rows: torch.mv(rows, v),
    "L2": lambda v, rows: (rows - v).square_().sum(dim=1),
    "L1": lambda v, rows: (rows - v).abs_().sum(dim=1),
}
