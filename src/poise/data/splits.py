"""Selections of samples: held-out parts and class-balanced subsets."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from poise.core.errors import require
from poise.core.types import Ints
from poise.data.apportionment import apportion


def share_of(value: float, name: str) -> float:
    """Return the share, or raise `InvalidOption` if it lies outside [0, 1)."""
    require(
        0 <= value < 1, f"{name} = {value!r} must be at least 0 and below 1", where=name
    )
    return float(value)


def held_out(
    groups: NDArray[Any], share: float, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Mark ``round(share · size)`` random members of every group as held out.

    At least one member of every group is not marked.

    >>> held_out(np.array([0, 0, 0, 0, 0, 1, 1]), 0.4, np.random.default_rng(0)).sum()
    np.int64(3)
    """
    order = np.lexsort((rng.random(len(groups)), groups))
    _, starts, sizes = np.unique(groups[order], return_index=True, return_counts=True)
    quota = np.minimum(np.floor(share * sizes + 0.5).astype(np.int64), sizes - 1)
    rank = np.arange(len(groups)) - np.repeat(starts, sizes)
    marked = np.zeros(len(groups), dtype=np.bool_)
    marked[order] = rank < np.repeat(quota, sizes)
    return marked


def balanced_subset(
    labels: NDArray[Any], count: int, classes: int, rng: np.random.Generator
) -> Ints:
    """Return ``count`` random positions, ascending, as equally per class as possible.

    A class that is too small contributes all its samples, and the others contribute
    more. For regression (``classes = 0``) the subset is uniform.

    >>> rows = balanced_subset(np.array([0, 0, 0, 0, 1, 1]), 5, 2, np.random.default_rng(0))
    >>> np.bincount(np.array([0, 0, 0, 0, 1, 1])[rows]).tolist()
    [3, 2]
    """
    available = len(labels)
    require(
        isinstance(count, int | np.integer) and 1 <= count <= available,
        f"a subset of {count} samples is not possible: there are {available} samples",
        f"choose 1 to {available}",
    )
    if classes == 0:
        return np.sort(rng.choice(available, int(count), replace=False)).astype(
            np.int64
        )
    sizes = np.bincount(labels, minlength=classes)
    quota = apportion((sizes > 0).astype(float)[None], np.array([count]), sizes[None])[
        0
    ]
    order = np.lexsort((rng.random(available), labels))
    rank = np.arange(available) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.sort(order[rank < np.repeat(quota, sizes)]).astype(np.int64)
