"""Random numbers by address: every draw names its stream.

Every draw comes from a stream named by (seed, purpose, numbers…), for example
``(0, "sampler", round)`` or ``(0, "batches", round, client)``. No generator is shared
or advanced, so a draw does not depend on earlier draws, on the order of the clients, on
the number of workers, or on interruptions of the run.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from numpy.typing import NDArray

U64 = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def address(seed: int, purpose: str, *numbers: int) -> int:
    """Return the 128-bit name of a stream.

    >>> address(0, "sampler", 3) == address(0, "sampler", 3)
    True
    >>> address(0, "sampler", 3) == address(0, "sampler", 4)
    False
    """
    text = "/".join([str(int(seed)), purpose, *(str(int(k)) for k in numbers)])
    return int.from_bytes(
        hashlib.blake2b(text.encode(), digest_size=16).digest(), "little"
    )


def generator(seed: int, purpose: str, *numbers: int) -> np.random.Generator:
    """Return a NumPy generator for one address.

    >>> generator(7, "noise", 1).integers(100) == generator(7, "noise", 1).integers(100)
    np.True_
    """
    return np.random.Generator(np.random.Philox(key=address(seed, purpose, *numbers)))


def torch_generator(seed: int, purpose: str, *numbers: int) -> torch.Generator:
    """Return a torch generator on the CPU for one address (weights, dropout, noise)."""
    low = address(seed, purpose, *numbers) & (2**63 - 1)
    return torch.Generator().manual_seed(low)


def _mix(z: U64) -> U64:
    """Apply the SplitMix64 finaliser: a bijection of words with full avalanche."""
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    return z ^ (z >> np.uint64(31))


def keys(seed: int, purpose: str, *columns: NDArray[np.int64] | int) -> U64:
    """Return 64-bit stream keys for many addresses at once, e.g. one per client.

    The columns broadcast: ``keys(seed, "batches", n, clients)`` has one key per client.
    A key depends on its own row of numbers only.
    """
    state: U64 = np.array([address(seed, purpose) & (2**64 - 1)], dtype=np.uint64)
    with np.errstate(over="ignore"):
        for column in columns:
            word = np.asarray(column, dtype=np.int64).astype(np.uint64)
            state = _mix((state ^ _mix(word + _GOLDEN)) + _GOLDEN)
    return state


def child(stream: U64, purpose: str) -> U64:
    """Derive one stream from each given stream, for another purpose.

    >>> parents = keys(0, "work", np.arange(2))
    >>> bool((child(parents, "channel") != parents).all())
    True
    """
    with np.errstate(over="ignore"):
        return _mix(stream ^ np.uint64(address(0, purpose) & (2**64 - 1)))


def words(stream: U64, count: int, start: int = 0) -> U64:
    """Return words ``start … start + count`` of each stream, (len, count).

    SplitMix64 in counter mode.
    """
    counter = np.arange(start + 1, start + count + 1, dtype=np.uint64)
    with np.errstate(over="ignore"):
        return _mix(stream[:, None] + counter[None, :] * _GOLDEN)


def permutations(stream: U64, size: int, need: int | None = None) -> NDArray[np.int64]:
    """Return the first ``need`` entries of a permutation of ``range(size)`` per stream.

    Entry j of a row does not depend on ``need``, so a smaller ``need`` only costs less.

    >>> p = permutations(keys(0, "batches", np.arange(3)), 5)
    >>> [sorted(row.tolist()) for row in p] == [[0, 1, 2, 3, 4]] * 3
    True
    >>> bool((permutations(keys(0, "batches", np.arange(3)), 5, need=2) == p[:, :2]).all())
    True
    """
    if need is None or need > size:
        need = size
    draws = words(stream, size)
    if need < size // 4:
        smallest = np.argpartition(draws, need, axis=1)[:, :need]
        order = np.argsort(np.take_along_axis(draws, smallest, axis=1), axis=1)
        return np.take_along_axis(smallest, order, axis=1)
    return np.argsort(draws, axis=1)[:, :need]
