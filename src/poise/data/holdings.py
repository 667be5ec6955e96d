"""Holdings: which rows of a pool each client owns."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from poise.core.types import Floats, Ints


class Holdings(Protocol):
    """The rows of a pool by owner, stored or computed on demand."""

    @property
    def clients(self) -> int:
        """Number of owners N."""

    @property
    def equal_size(self) -> int | None:
        """The size of every client if all are equal by construction, else None."""

    def sizes(self) -> Ints:
        """Return the samples per client, (N,); a read-only view if all are equal."""

    def rows(self, clients: Ints) -> tuple[Ints, Ints]:
        """Return the rows of these clients in turn, and their starts, (m + 1,)."""

    def traits(self, clients: Ints) -> dict[str, Floats]:
        """Return the numbers by which these clients differ, by name, (m,) each."""

    def fingerprint(self) -> bytes:
        """Return a hash of the rows of all clients."""


def gather(offsets: Ints, clients: Ints) -> tuple[Ints, Ints]:
    """Return the positions of these clients in a flat array cut at ``offsets``.

    The second array says where each client starts in the result.

    >>> positions, starts = gather(np.array([0, 2, 5, 6]), np.array([2, 0]))
    >>> positions.tolist(), starts.tolist()
    ([5, 0, 1], [0, 1, 3])
    """
    begin = offsets[clients]
    sizes = offsets[clients + 1] - begin
    starts = np.zeros(len(clients) + 1, dtype=np.int64)
    np.cumsum(sizes, out=starts[1:])
    return np.arange(starts[-1]) + np.repeat(begin - starts[:-1], sizes), starts


@dataclass(frozen=True, eq=False)
class StoredHoldings:
    """The rows of all clients, stored one after the other.

    Args:
        flat: the rows of all clients, (total,).
        offsets: client i owns ``flat[offsets[i]:offsets[i + 1]]``, (N + 1,).

    >>> StoredHoldings.of([np.array([4, 7]), np.array([1])]).rows(np.array([1, 0]))[0].tolist()
    [1, 4, 7]
    """

    flat: Ints
    offsets: Ints

    @staticmethod
    def of(parts: Sequence[Ints]) -> StoredHoldings:
        """Return holdings made of one array of rows per client."""
        offsets = np.zeros(len(parts) + 1, dtype=np.int64)
        np.cumsum([len(part) for part in parts], out=offsets[1:])
        return StoredHoldings(np.concatenate(parts).astype(np.int64), offsets)

    @property
    def clients(self) -> int:
        """Number of owners."""
        return len(self.offsets) - 1

    @property
    def equal_size(self) -> int | None:
        """None: the sizes may differ."""
        return None

    @property
    def owners(self) -> Ints:
        """The client of each position of ``flat``."""
        return np.repeat(np.arange(self.clients), np.diff(self.offsets))

    def sizes(self) -> Ints:
        """Return the samples per client."""
        return np.diff(self.offsets)

    def rows(self, clients: Ints) -> tuple[Ints, Ints]:
        """Return the rows of these clients, and where each starts."""
        positions, starts = gather(self.offsets, clients)
        return self.flat[positions], starts

    def traits(self, clients: Ints) -> dict[str, Floats]:
        """Return no traits: rows alone say nothing about their clients."""
        return {}

    def fingerprint(self) -> bytes:
        """Return a hash of rows and offsets."""
        digest = hashlib.blake2b(np.ascontiguousarray(self.flat).data, digest_size=16)
        digest.update(np.ascontiguousarray(self.offsets).data)
        return digest.digest()

    def split(
        self, out: np.ndarray[tuple[int], np.dtype[np.bool_]]
    ) -> tuple[StoredHoldings, StoredHoldings]:
        """Return two holdings of the same clients: unmarked and marked positions."""
        owners = self.owners

        def of(mask: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> StoredHoldings:
            counts = np.bincount(owners[mask], minlength=self.clients)
            return StoredHoldings(
                self.flat[mask],
                np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            )

        return of(~out), of(out)
