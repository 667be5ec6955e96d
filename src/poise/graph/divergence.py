"""How far the class composition of each client is from that of all clients together."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from poise.core.errors import require
from poise.core.types import Floats


def total_variation(counts: ArrayLike) -> Floats:
    """Half of sum_c |q_ic - q_c|, (N,): q_i the class shares of client i, q those of all; 0 … 1.

    >>> total_variation([[5, 0], [0, 5]])
    array([0.5, 0.5])
    """
    own, all_ = _shares(counts)
    return np.asarray(np.abs(own - all_).sum(axis=1) / 2)


def jensen_shannon(counts: ArrayLike) -> Floats:
    """Jensen-Shannon divergence of client i's class shares from those of all, in bits, (N,); 0 … 1.

    >>> jensen_shannon([[1, 1], [1, 1]])
    array([0., 0.])
    """
    own, all_ = _shares(counts)
    middle = (own + all_) / 2
    return np.asarray(
        np.maximum((_bits(own, middle) + _bits(np.broadcast_to(all_, own.shape), middle)) / 2, 0.0)
    )


def _shares(counts: ArrayLike) -> tuple[Floats, Floats]:
    table = np.asarray(counts, dtype=np.float64)
    good = table.ndim == 2 and bool((table >= 0).all()) and bool((table.sum(axis=1) > 0).all())
    require(
        good,
        (
            "class counts must be a table (clients, classes) of numbers >= 0, with samples for every "
            "client"
        ),
    )
    total = table.sum(axis=0)
    return table / table.sum(axis=1, keepdims=True), total / total.sum()


def _bits(p: Floats, q: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(p > 0, p * np.log2(p / q), 0.0).sum(axis=1))
