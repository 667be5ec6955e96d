"""The protocol of corruptions: pure functions of (seed, client) on samples."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Protocol

import torch

from poise.core.errors import require
from poise.core.samples import Samples, Shards
from poise.core.types import Floats, Ints

Span = tuple[float, float]
"""The smallest and the largest stored value of the pool."""


class Corruption(Protocol):
    """Changes labels or features of clients, each from (seed, client) only."""

    name: ClassVar[str]
    features: ClassVar[bool]
    """Whether stored values change; the samples of the clients are then copied."""
    own_tests: ClassVar[bool]
    """Whether the corruption also applies to the clients' own test samples."""

    def fit(self, pool: Samples, clients: int) -> None:
        """Refuse a pool that cannot be corrupted like this."""

    def apply(self, shards: Shards, clients: Ints, span: Span) -> Shards:
        """Return the corrupted samples of these clients; ``shards`` stays unchanged."""

    def traits(self, clients: Ints) -> dict[str, Floats]:
        """Return the numbers by which these clients differ, by name, (m,) each."""


def require_one_input(pool: Samples, name: str) -> None:
    """Raise if a model has several inputs: it is unclear which of them to change."""
    require(
        len(pool.pools) == 1,
        f"{name} changes the features of one input, but samples have {len(pool.pools)}",
    )


def copied(shards: Shards) -> Shards:
    """Copy the samples into a new pool, in the order of the clients, to change them.

    >>> pool = Samples(torch.arange(6.0).view(3, 2), torch.tensor([0, 1, 0]), classes=2)
    >>> import numpy as np
    >>> own = copied(Shards(pool, torch.tensor([2, 0]), torch.tensor([0, 0]), np.array([0, 2])))
    >>> own.samples.raw.tolist(), own.rows.tolist()
    ([[4.0, 5.0], [0.0, 1.0]], [0, 1])
    """
    raw = shards.samples.raw[shards.rows]
    labels = shards.labels.clone()
    pool = replace(shards.samples, raw=raw, labels=labels)
    return Shards(pool, torch.arange(len(raw)), labels, shards.offsets)
