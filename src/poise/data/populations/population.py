"""A population of any size: client i's rows are computed from (seed, i) when somebody asks."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from poise.core.rng import keys
from poise.core.types import Floats, Ints
from poise.data.partitions.common import Labels
from poise.data.populations.distinct import distinct
from poise.data.populations.rules import Rule


@dataclass(frozen=True, eq=False)
class PopulationRequest:
    """What a population is made of: the labels of the pool, the number of clients, and the seed."""

    labels: Labels
    clients: int
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Population:
    """Clients made on demand. Clients overlap; the samples of one client are distinct.

    Nothing is stored per client, so a million clients take no more memory than ten, and client i is
    the same whatever the number of clients and whoever else was asked for.

    Args:
        clients: number of clients N.
        seed: of the population.
        rule: how many samples of each group a client owns.
        order: rows of the pool sorted by group.
        starts: where each group starts in ``order``, (groups + 1,).

    Source: B §4.1, clients that are fresh every round.
    """

    clients: int
    seed: int
    rule: Rule
    order: Ints
    starts: Ints

    @property
    def equal_size(self) -> int | None:
        """The size of every client where all are equal, else None."""
        return self.rule.equal_size

    def sizes(self) -> Ints:
        """Samples per client, (N,)."""
        if self.equal_size is not None:
            return np.broadcast_to(np.int64(self.equal_size), (self.clients,))
        return self.rule.sizes(np.arange(self.clients))

    def rows(self, clients: Ints) -> tuple[Ints, Ints]:
        """Rows of these clients, made now."""
        counts = self.rule.counts(clients)
        groups = counts.shape[1]
        streams = np.broadcast_to(
            keys(self.seed, "population", clients[:, None], np.arange(groups)), counts.shape
        )
        flat = counts.ravel()
        position = np.arange(int(flat.sum())) - np.repeat(np.cumsum(flat) - flat, flat)
        group = np.repeat(np.tile(np.arange(groups), len(clients)), flat)
        inside = distinct(np.repeat(streams.ravel(), flat), position, np.diff(self.starts)[group])
        offsets = np.concatenate([[0], np.cumsum(counts.sum(axis=1))]).astype(np.int64)
        return self.order[self.starts[group] + inside], offsets

    def traits(self, clients: Ints) -> dict[str, Floats]:
        """What the rule says that sets these clients apart."""
        return self.rule.traits(clients)

    def fingerprint(self) -> bytes:
        """Hash of the pool's order and of the rows of the first clients, which the rule decides."""
        digest = hashlib.blake2b(f"{self.clients}/{self.seed}".encode(), digest_size=16)
        digest.update(np.ascontiguousarray(self.order).data)
        digest.update(np.ascontiguousarray(self.rows(np.arange(min(self.clients, 16)))[0]).data)
        return digest.digest()
