"""Divergence of each client's class shares from those of all clients together."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from poise.core.errors import require
from poise.core.types import Floats


def total_variation(counts: ArrayLike) -> Floats:
    """Half of sum_c |q_ic - q_c|, (N,), from 0 to 1.

    q_i are the class shares of client i, q the class shares of all clients.

    >>> total_variation([[5, 0], [0, 5]])
    array([0.5, 0.5])
    """
    shares, overall = _shares(counts)
    return np.asarray(np.abs(shares - overall).sum(axis=1) / 2)


def jensen_shannon(counts: ArrayLike) -> Floats:
    """Jensen-Shannon divergence of client i's class shares from all, in bits, (N,).

    It lies between 0 and 1.

    >>> jensen_shannon([[1, 1], [1, 1]])
    array([0., 0.])
    """
    shares, overall = _shares(counts)
    middle = (shares + overall) / 2
    to_overall = _bits(np.broadcast_to(overall, shares.shape), middle)
    return np.asarray(np.maximum((_bits(shares, middle) + to_overall) / 2, 0.0))


def _shares(counts: ArrayLike) -> tuple[Floats, Floats]:
    """Return the class shares of each client, (N, classes), and of all, (classes,)."""
    table = np.asarray(counts, dtype=np.float64)
    valid = (
        table.ndim == 2
        and bool((table >= 0).all())
        and bool((table.sum(axis=1) > 0).all())
    )
    require(
        valid,
        (
            "class counts must be a table (clients, classes) of numbers >= 0, with samples for "
            "every client"
        ),
    )
    total = table.sum(axis=0)
    return table / table.sum(axis=1, keepdims=True), total / total.sum()


def _bits(p: Floats, q: Floats) -> Floats:
    """Return the Kullback-Leibler divergence of p from q in bits, row by row."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(p > 0, p * np.log2(p / q), 0.0).sum(axis=1))
