"""Binning of clients and rounds, so that large runs fit into a figure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from poise.core.types import Floats, Ints
from poise.results import Run


@dataclass(frozen=True)
class Bins:
    """Bins of neighbouring indices: bin k holds ``edges[k] … edges[k + 1] - 1``."""

    edges: Ints  # (K + 1,)

    @property
    def sizes(self) -> Ints:
        """Number of indices in each bin, (K,)."""
        return np.diff(self.edges)

    @property
    def width(self) -> int:
        """Number of indices in a full bin; the last bin may hold fewer."""
        return int(self.sizes.max(initial=0))

    @property
    def centres(self) -> Floats:
        """The middle of each bin, (K,)."""
        return (self.edges[:-1] + self.edges[1:] - 1) / 2

    def of(self, index: Ints) -> Ints:
        """The bin of each index."""
        return np.searchsorted(self.edges, index, side="right") - 1

    def sum(self, values: Floats) -> Floats:
        """The sum over each bin, (K,)."""
        return np.asarray(np.add.reduceat(values, self.edges[:-1]), dtype=np.float64)

    def labels(self, noun: str) -> list[str]:
        """The content of each bin in words.

        >>> bins(3, 2).labels("client")
        ['clients 0 to 1', 'client 2']
        """
        spans = zip(
            self.edges[:-1].tolist(), (self.edges[1:] - 1).tolist(), strict=True
        )
        return [f"{noun} {a}" if a == b else f"{noun}s {a} to {b}" for a, b in spans]


@dataclass(frozen=True)
class Heat:
    """Weights by bins of rounds and of clients.

    Args:
        values: (rounds, clients), summed over the clients of a bin, averaged over its
            rounds.
        rounds: bins of rounds.
        clients: bins of clients.
        note: how the values were binned, in words; empty without binning.
    """

    values: Floats
    rounds: Bins
    clients: Bins
    note: str


def bins(count: int, limit: int) -> Bins:
    """At most ``limit`` bins of equal size; the last may be smaller.

    >>> bins(5, 3).edges.tolist(), bins(3, 10).edges.tolist()
    ([0, 2, 4, 5], [0, 1, 2, 3])
    """
    width = max(-(-count // limit), 1)
    return Bins(np.append(np.arange(0, count, width), count))


def evenly(count: int, limit: int) -> Ints:
    """At most ``limit`` of ``count`` indices, evenly spaced, including both ends.

    >>> evenly(9, 3).tolist(), evenly(2, 3).tolist()
    ([0, 4, 8], [0, 1])
    """
    return np.linspace(0, count - 1, min(count, limit)).round().astype(np.int64)


def heat(run: Run, most_clients: int, most_rounds: int) -> Heat:
    """The weights of a run, binned if there are too many rounds or clients to draw.

    Each row sums over clients to the mean total weight of the rounds in its bin.
    """
    rounds = bins(run.rounds, most_rounds)
    clients = bins(run.clients, most_clients)
    values = np.zeros((len(rounds.sizes), len(clients.sizes)))
    c = run.contributions
    np.add.at(
        values, (rounds.of(c["round"]), clients.of(c["client"])), c["coefficient"]
    )
    notes = []
    if run.clients > most_clients:
        notes.append(
            f"{run.clients} clients in bins of {clients.width}, weights summed"
        )
    if run.rounds > most_rounds:
        notes.append(
            f"{run.rounds} aggregations in bins of {rounds.width}, weights averaged"
        )
    note = ""
    if notes:
        note = f"Down-sampled: {'; '.join(notes)}."
    return Heat(
        values / rounds.sizes[:, None], rounds=rounds, clients=clients, note=note
    )
