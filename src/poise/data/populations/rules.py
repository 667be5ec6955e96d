"""How many samples of each group a client made on demand owns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from poise.core.rng import keys, permutations
from poise.core.types import Floats, Ints
from poise.data.apportionment import apportion
from poise.data.partitions.dirichlet import proportions
from poise.data.partitions.imbalanced import class_counts, draw, equal_counts


class Rule(Protocol):
    """Counts from (seed, client) only, for many clients at once."""

    @property
    def equal_size(self) -> int | None:
        """The size of every client where all are equal, else None."""

    def counts(self, clients: Ints) -> Ints:
        """Samples of each group, (m, groups)."""

    def sizes(self, clients: Ints) -> Ints:
        """Samples of each client, (m,), without computing what they are."""

    def traits(self, clients: Ints) -> dict[str, Floats]:
        """What sets these clients apart, as numbers by name, (m,) each; empty where nothing
        does.
        """


@dataclass(frozen=True, eq=False)
class Anything:
    """``size`` samples of the whole pool, which is one group (A §4.1)."""

    equal_size: int

    def counts(self, clients: Ints) -> Ints:
        """``size`` of the one group."""
        return np.full((len(clients), 1), self.equal_size)

    def sizes(self, clients: Ints) -> Ints:
        """The same for all."""
        return np.full(len(clients), self.equal_size)

    def traits(self, clients: Ints) -> dict[str, Floats]:
        """None that is a number."""
        return {}


@dataclass(frozen=True, eq=False)
class OneClass:
    """``size`` samples of class ``i mod C``, counting classes that have samples (E §5.5.1)."""

    equal_size: int
    present: Ints
    classes: int

    def counts(self, clients: Ints) -> Ints:
        """``size`` of the client's class, none of the others."""
        table = np.zeros((len(clients), self.classes), dtype=np.int64)
        table[np.arange(len(clients)), self.present[clients % len(self.present)]] = self.equal_size
        return table

    def sizes(self, clients: Ints) -> Ints:
        """The same for all."""
        return np.full(len(clients), self.equal_size)

    def traits(self, clients: Ints) -> dict[str, Floats]:
        """None that is a number."""
        return {}


@dataclass(frozen=True, eq=False)
class Proportions:
    """``size`` samples in proportions π_i ~ Dir(α·1), at most what a class has (E §3.6)."""

    equal_size: int
    alpha: float
    seed: int
    room: Ints

    def counts(self, clients: Ints) -> Ints:
        """Largest remainders of ``size · π_i``."""
        shares = proportions(self.seed, clients, self.alpha, len(self.room))
        room = np.broadcast_to(self.room, shares.shape)
        return apportion(shares, np.full(len(clients), self.equal_size), room)

    def sizes(self, clients: Ints) -> Ints:
        """The same for all."""
        return np.full(len(clients), self.equal_size)

    def traits(self, clients: Ints) -> dict[str, Floats]:
        """None that is a number."""
        return {}


@dataclass(frozen=True, eq=False)
class Thinning:
    """Class c of K gets n_max · r^{c/(K-1)}, r drawn from ``ratios`` by (seed, client) (B §4.1).

    With ``size``, classes keep these proportions and every client has that many samples in all;
    with ``own_order``, which class is the largest, the second, … is drawn for each client.
    """

    ratios: Floats
    n_max: int
    classes: int
    seed: int
    size: int | None = None
    own_order: bool = False

    @property
    def equal_size(self) -> int | None:
        """The size where all clients have the same."""
        return (
            int(self._table()[0].sum()) if len(self.ratios) == 1 or self.size is not None else None
        )

    def _table(self) -> Ints:
        if self.size is not None:
            return equal_counts(self.ratios, self.classes, self.size)
        return class_counts(self.ratios, self.classes, self.n_max)

    def largest(self) -> int:
        """The most samples that a client can have of one class."""
        return int(self._table().max())

    def counts(self, clients: Ints) -> Ints:
        """The row of the table of the client's ratio."""
        counts: Ints = self._table()[draw(self.seed, clients, len(self.ratios))]
        if not self.own_order:
            return counts
        return np.take_along_axis(
            counts, permutations(keys(self.seed, "imbalanced/order", clients), self.classes), 1
        )

    def sizes(self, clients: Ints) -> Ints:
        """One look-up per client."""
        sizes: Ints = self._table().sum(axis=1)
        return sizes[draw(self.seed, clients, len(self.ratios))]

    def traits(self, clients: Ints) -> dict[str, Floats]:
        """The imbalance ratio of each client."""
        return {"imbalance ratio": self.ratios[draw(self.seed, clients, len(self.ratios))]}
