"""Population rules: how many samples of each group a client on demand owns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from poise.core.rng import keys, permutations
from poise.core.types import Floats, Ints
from poise.data.apportionment import apportion
from poise.data.partitions.dirichlet import proportions
from poise.data.partitions.imbalanced import class_counts, draw, equal_counts


class PopulationRule(Protocol):
    """Counts that depend on (seed, client) only, for many clients at once."""

    @property
    def equal_size(self) -> int | None:
        """The size of every client if all are equal, else None."""

    def counts(self, clients: Ints) -> Ints:
        """Return the samples of each group, (m, groups)."""

    def sizes(self, clients: Ints) -> Ints:
        """Return the samples of each client, (m,), without computing the rows."""

    def traits(self, clients: Ints) -> dict[str, Floats]:
        """Return the numbers by which these clients differ, by name, (m,) each."""


@dataclass(frozen=True, eq=False)
class WholePool:
    """``size`` samples of the whole pool, which is one group [Mansour 2022, §4.1]."""

    equal_size: int

    def counts(self, clients: Ints) -> Ints:
        """Return ``size`` samples of the one group."""
        return np.full((len(clients), 1), self.equal_size)

    def sizes(self, clients: Ints) -> Ints:
        """Return the same size for all clients."""
        return np.full(len(clients), self.equal_size)

    def traits(self, clients: Ints) -> dict[str, Floats]:
        """Return no traits."""
        return {}


@dataclass(frozen=True, eq=False)
class OneClass:
    """``size`` samples of class ``i mod C``, where only classes with samples count.

    Source: [Fraboni 2023, §5.5.1].
    """

    equal_size: int
    present: Ints
    classes: int

    def counts(self, clients: Ints) -> Ints:
        """Return ``size`` samples of the client's class, and none of the others."""
        table = np.zeros((len(clients), self.classes), dtype=np.int64)
        table[np.arange(len(clients)), self.present[clients % len(self.present)]] = (
            self.equal_size
        )
        return table

    def sizes(self, clients: Ints) -> Ints:
        """Return the same size for all clients."""
        return np.full(len(clients), self.equal_size)

    def traits(self, clients: Ints) -> dict[str, Floats]:
        """Return no traits."""
        return {}


@dataclass(frozen=True, eq=False)
class Proportions:
    """``size`` samples in proportions π_i ~ Dir(α·1), at most what a class has.

    Source: [Fraboni 2023, §3.6].
    """

    equal_size: int
    alpha: float
    seed: int
    room: Ints

    def counts(self, clients: Ints) -> Ints:
        """Round ``size · π_i`` by largest remainders."""
        shares = proportions(self.seed, clients, self.alpha, len(self.room))
        room = np.broadcast_to(self.room, shares.shape)
        return apportion(shares, np.full(len(clients), self.equal_size), room)

    def sizes(self, clients: Ints) -> Ints:
        """Return the same size for all clients."""
        return np.full(len(clients), self.equal_size)

    def traits(self, clients: Ints) -> dict[str, Floats]:
        """Return no traits."""
        return {}


@dataclass(frozen=True, eq=False)
class Thinning:
    """n_max · r^{c/(K-1)} samples of class c of K; (seed, client) draws r.

    With ``size``, classes keep these proportions and every client has that many samples
    in total. With ``own_order``, the order of the classes by size is drawn for each
    client.

    Source: [Exp-α 2023, §4.1].
    """

    ratios: Floats
    n_max: int
    classes: int
    seed: int
    size: int | None = None
    own_order: bool = False

    @property
    def equal_size(self) -> int | None:
        """The size of every client if all are equal, else None."""
        if len(self.ratios) > 1 and self.size is None:
            return None
        return int(self._table()[0].sum())

    def _table(self) -> Ints:
        if self.size is not None:
            return equal_counts(self.ratios, self.classes, self.size)
        return class_counts(self.ratios, self.classes, self.n_max)

    def largest(self) -> int:
        """Return the largest number of samples that a client can have of one class."""
        return int(self._table().max())

    def counts(self, clients: Ints) -> Ints:
        """Return the counts that belong to the ratio of each client."""
        counts: Ints = self._table()[draw(self.seed, clients, len(self.ratios))]
        if not self.own_order:
            return counts
        orders = permutations(
            keys(self.seed, "imbalanced/order", clients), self.classes
        )
        return np.take_along_axis(counts, orders, axis=1)

    def sizes(self, clients: Ints) -> Ints:
        """Look up the size that belongs to the ratio of each client."""
        sizes: Ints = self._table().sum(axis=1)
        return sizes[draw(self.seed, clients, len(self.ratios))]

    def traits(self, clients: Ints) -> dict[str, Floats]:
        """Return the imbalance ratio of each client."""
        return {
            "imbalance ratio": self.ratios[draw(self.seed, clients, len(self.ratios))]
        }
