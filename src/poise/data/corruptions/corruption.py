"""What a corruption is: a pure function of (seed, client) on what some clients own."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Protocol

import torch

from poise.core.samples import Samples, Shards
from poise.core.types import Floats, Ints

Span = tuple[float, float]
"""The smallest and the largest stored value of the pool."""


class Corruption(Protocol):
    """Changes the labels or the features of clients, each from (seed, client) only."""

    name: ClassVar[str]
    features: ClassVar[bool]
    """Whether stored values change (then the samples of the clients are copied)."""
    own_tests: ClassVar[bool]
    """Whether it also holds for the clients' own test samples."""

    def fit(self, pool: Samples, clients: int) -> None:
        """Refuse a pool that cannot be corrupted like this."""

    def apply(self, shards: Shards, clients: Ints, span: Span) -> Shards:
        """What these clients own afterwards; ``shards`` stays as it is."""

    def traits(self, clients: Ints) -> dict[str, Floats]:
        """What sets these clients apart, as numbers by name, (m,) each; empty where nothing
        does.
        """


def copied(shards: Shards) -> Shards:
    """The same samples in a pool of their own, in the order of the clients, free to be changed.

    >>> pool = Samples(torch.arange(6.0).view(3, 2), torch.tensor([0, 1, 0]), classes=2)
    >>> import numpy as np
    >>> own = copied(Shards(pool, torch.tensor([2, 0]), torch.tensor([0, 0]), np.array([0, 2])))
    >>> own.samples.raw.tolist(), own.rows.tolist()
    ([[4.0, 5.0], [0.0, 1.0]], [0, 1])
    """
    raw, labels = shards.samples.raw[shards.rows], shards.labels.clone()
    pool = replace(shards.samples, raw=raw, labels=labels)
    return Shards(pool, torch.arange(len(raw)), labels, shards.offsets)
