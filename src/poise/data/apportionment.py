"""Rounding to whole numbers in given proportions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from poise.core.types import Floats, Ints


def largest_remainders(shares: Floats, totals: Ints) -> Ints:
    """Round ``totals[i] · shares[i]`` to whole numbers of sum ``totals[i]``, by rows.

    The method of largest remainders: round every entry down, then add 1 to the entries
    with the largest fractions until the sum is right; ties go to the first.

    >>> largest_remainders(np.array([[0.5, 0.3, 0.2]]), np.array([4]))
    array([[2, 1, 1]])
    """
    exact = shares * totals[:, None]
    whole = np.floor(exact).astype(np.int64)
    order = np.argsort(whole - exact, axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(
        rank, order, np.broadcast_to(np.arange(shares.shape[1]), order.shape), axis=1
    )
    missing: Ints = totals - whole.sum(axis=1)
    result: Ints = whole + (rank < missing[:, None])
    return result


def apportion(weights: NDArray[np.float64], totals: Ints, capacity: Ints) -> Ints:
    """Return whole numbers (m, K) in proportion to ``weights``, within ``capacity``.

    Row i sums to ``totals[i]``. The rest that a full column cannot take goes to the
    columns with room, again in proportion to their weights, or in proportion to the
    room if these weights are all zero. The caller makes sure that
    ``capacity.sum(1) >= totals``.

    >>> apportion(np.array([[0.9, 0.1, 0.0]]), np.array([10]), np.array([[5, 3, 9]]))
    array([[5, 3, 2]])
    """
    counts = np.zeros(weights.shape, dtype=np.int64)
    left = totals.astype(np.int64)
    while left.any():
        room = capacity - counts
        open_weights = np.where(room > 0, weights, 0.0)
        stuck = open_weights.sum(axis=1) <= 0
        open_weights[stuck] = room[stuck]
        shares = open_weights / open_weights.sum(axis=1, keepdims=True)
        dealt = np.minimum(largest_remainders(shares, left), room)
        counts += dealt
        left = left - dealt.sum(axis=1)
    return counts
