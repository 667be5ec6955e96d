"""`distinct`: draws without replacement, each computed independently of the others."""

from __future__ import annotations

import numpy as np

from poise.core.rng import U64, keys
from poise.core.types import Ints

_ROUNDS = 6
_ODD = np.uint64(0x9E3779B97F4A7C15)


def distinct(streams: U64, positions: Ints, sizes: Ints) -> Ints:
    """Return entry ``positions[k]`` of a permutation of ``range(sizes[k])``, per k.

    The permutation is a keyed pseudo-random bijection, so each entry is computed
    without the others. A number below a·b ≥ size is written as (l, r), l < a, r < b,
    and mixed by a Feistel network, l += F(r) mod a, r += F(l) mod b. A result at or
    above the size is mixed again, which keeps the map a bijection.

    Args:
        streams: (k,) stream keys.
        positions: (k,) below ``sizes``.
        sizes: (k,) at least 1.

    >>> row = distinct(np.full(10, 7, np.uint64), np.arange(10), np.full(10, 10))
    >>> sorted(row.tolist()) == list(range(10))
    True
    """
    columns = np.ceil(np.sqrt(sizes)).astype(np.int64)
    lines = -(-sizes // columns)
    values = positions.astype(np.int64)
    open_ = np.arange(len(values))
    while len(open_):
        values[open_] = _mixed(
            streams[open_], values[open_], columns[open_], lines[open_]
        )
        open_ = open_[values[open_] >= sizes[open_]]
    return values


def _mixed(streams: U64, values: Ints, columns: Ints, lines: Ints) -> Ints:
    left, right = np.divmod(values, lines)
    for turn in range(_ROUNDS):
        left = (left + _scatter(streams, 2 * turn, right)) % columns
        right = (right + _scatter(streams, 2 * turn + 1, left)) % lines
    mixed: Ints = left * lines + right
    return mixed


def _scatter(streams: U64, turn: int, values: Ints) -> Ints:
    """Return a pseudo-random number in 0 … 2^32 - 1 for each (stream, turn, value)."""
    with np.errstate(over="ignore"):
        words = streams + values.astype(np.uint64) * _ODD
    return (keys(turn, "distinct", words.view(np.int64)) >> np.uint64(32)).astype(
        np.int64
    )
