"""`Population`: clients whose rows are computed from (seed, client) on demand."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from poise.core.rng import keys
from poise.core.types import Floats, Ints
from poise.data.partitions.common import Labels
from poise.data.populations.distinct import distinct
from poise.data.populations.rules import PopulationRule


@dataclass(frozen=True, eq=False)
class PopulationRequest:
    """The labels of the pool, the number of clients, and the seed of a population."""

    labels: Labels
    clients: int
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Population:
    """Clients on demand: they may share samples; those of one client are distinct.

    Nothing is stored per client, so a million clients take no more memory than ten.
    Client i is the same for any number of clients, and does not depend on the other
    clients of a request.

    Args:
        clients: number of clients N.
        seed: of the population.
        rule: how many samples of each group a client owns.
        order: rows of the pool sorted by group.
        starts: where each group starts in ``order``, (groups + 1,).

    Source: [Exp-α 2023, §4.1], clients that are fresh every round.
    """

    clients: int
    seed: int
    rule: PopulationRule
    order: Ints
    starts: Ints

    @property
    def equal_size(self) -> int | None:
        """The size of every client if all are equal, else None."""
        return self.rule.equal_size

    def sizes(self) -> Ints:
        """Return the samples per client, (N,)."""
        if self.equal_size is not None:
            return np.broadcast_to(np.int64(self.equal_size), (self.clients,))
        return self.rule.sizes(np.arange(self.clients))

    def rows(self, clients: Ints) -> tuple[Ints, Ints]:
        """Compute the rows of these clients, and where each client starts."""
        counts = self.rule.counts(clients)
        groups = counts.shape[1]
        streams = np.broadcast_to(
            keys(self.seed, "population", clients[:, None], np.arange(groups)),
            counts.shape,
        )
        flat = counts.ravel()
        position = np.arange(int(flat.sum())) - np.repeat(np.cumsum(flat) - flat, flat)
        group = np.repeat(np.tile(np.arange(groups), len(clients)), flat)
        inside = distinct(
            np.repeat(streams.ravel(), flat), position, np.diff(self.starts)[group]
        )
        offsets = np.concatenate([[0], np.cumsum(counts.sum(axis=1))]).astype(np.int64)
        return self.order[self.starts[group] + inside], offsets

    def traits(self, clients: Ints) -> dict[str, Floats]:
        """Return the numbers by which the rule says that these clients differ."""
        return self.rule.traits(clients)

    def fingerprint(self) -> bytes:
        """Return a hash of the pool's order and of the rows of the first 16 clients."""
        digest = hashlib.blake2b(f"{self.clients}/{self.seed}".encode(), digest_size=16)
        digest.update(np.ascontiguousarray(self.order).data)
        digest.update(
            np.ascontiguousarray(self.rows(np.arange(min(self.clients, 16)))[0]).data
        )
        return digest.digest()
