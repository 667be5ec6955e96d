"""The similarity graph of a federation, its spectrum and its homogeneity."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.cluster.hierarchy import fcluster, linkage

from poise.core.errors import require
from poise.core.federations import ReadableFederation
from poise.core.types import Floats, Ints
from poise.graph.principal import messages

LEAST = 1e-12
"""Misalignment is not counted below this: identical clients are 27.6 apart in logarithms, not
infinitely."""


def similarity(
    federation: ReadableFederation, labels: bool = False, noise: float = 0.0, seed: int = 0
) -> SimilarityGraph:
    """The similarity graph of a federation, from one message per client (see `messages` for the
    arguments).

    A message is the main direction of a client's data and says something about them: it leaves the
    client. ``noise`` covers it.
    """
    return SimilarityGraph(messages(federation, labels, noise, seed))


@dataclass(frozen=True)
class SimilarityGraph:
    """Clients as nodes, ``A_ij = -ln mis(i, j)`` with ``mis(i, j) = (1 - m_i . m_j)/2`` as weights
    of the edges.

    Args:
        messages: (N, D), rows of length 1.

    Source: C section 3.2.2.

    >>> graph = SimilarityGraph(np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]))
    >>> graph.misalignment
    array([[0. , 0.5, 1. ],
           [0.5, 0. , 0.5],
           [1. , 0.5, 0. ]])
    """

    messages: Floats

    def __post_init__(self) -> None:
        rows = np.asarray(self.messages, dtype=np.float64)
        require(
            rows.ndim == 2 and len(rows) >= 2,
            "a similarity graph needs the messages of two clients or more",
        )
        lengths = np.linalg.norm(rows, axis=1)
        bad = np.flatnonzero(~(np.abs(lengths - 1) < 1e-6))
        require(
            len(bad) == 0,
            f"the message of client {bad[0] if len(bad) else ''} does not have length 1",
        )
        object.__setattr__(self, "messages", rows)

    @property
    def clients(self) -> int:
        """Number of clients."""
        return len(self.messages)

    @cached_property
    def misalignment(self) -> Floats:
        """mis(i, j) in [0, 1], (N, N); 0 on the diagonal."""
        return _misaligned(self.messages @ self.messages.T, diagonal=True)

    @cached_property
    def adjacency(self) -> Floats:
        """A, (N, N); 0 on the diagonal."""
        found = -np.log(np.maximum(self.misalignment, LEAST)) + 0.0
        np.fill_diagonal(found, 0.0)
        return np.asarray(found)

    @property
    def edges(self) -> Floats:
        """``-ln mis(i, j)`` of every pair of clients i < j, (N (N - 1)/2,)."""
        return np.asarray(self.adjacency[np.triu_indices(self.clients, 1)])

    @cached_property
    def degree(self) -> Floats:
        """A 1, (N,): how alike a client is to all others together."""
        return np.asarray(self.adjacency.sum(axis=1))

    @cached_property
    def laplacian(self) -> Floats:
        """L = D - A, (N, N)."""
        return np.asarray(np.diag(self.degree) - self.adjacency)

    @cached_property
    def spectrum(self) -> Floats:
        """The eigenvalues of L, ascending, (N,); the first is 0."""
        found = np.asarray(np.linalg.eigvalsh(self.laplacian), dtype=np.float64)
        found[0] = 0.0
        return found

    @property
    def homogeneity(self) -> float:
        """``tr(D) / (2 N (N - 1))``, which is half of the mean weight of an edge."""
        n = self.clients
        return float(self.degree.sum() / (2 * n * (n - 1)))

    @property
    def shares(self) -> Floats:
        """p_ij = A_ij / (1' A 1), (N, N): how much client j's model counts for client i."""
        return np.asarray(self.adjacency / max(self.degree.sum(), 1e-300))

    @property
    def weights(self) -> Floats:
        """p_i = sum_j p_ij, (N,): importance by degree; sums to 1."""
        return np.asarray(self.degree / self.degree.sum())

    def fit(self) -> tuple[float, float]:
        """(theta, phi) of ``-ln mis ~ N(theta, phi^2)`` over the pairs of clients, by maximum
        likelihood.
        """
        return float(self.edges.mean()), float(self.edges.std())

    def typical(self) -> Ints:
        """Clients from the most to the least typical, by degree."""
        return np.argsort(-self.degree, kind="stable")

    def outliers(self, threshold: float = 3.5) -> Ints:
        """Clients whose degree is far below the others': more than ``threshold`` robust standard
        deviations (MAD).
        """
        gap = self.degree - np.median(self.degree)
        spread = 1.4826 * np.median(np.abs(gap))
        return np.flatnonzero(
            gap < -threshold * max(spread, 1e-12 * max(1.0, np.abs(self.degree).max()))
        )

    def clusters(self, count: int) -> Ints:
        """The clients in ``count`` groups, (N,), by Ward's method on the messages; numbered by
        first client.
        """
        require(1 <= count <= self.clients, f"{count} clusters of {self.clients} clients")
        found = fcluster(linkage(self.messages, "ward"), count, criterion="maxclust")
        order = {label: k for k, label in enumerate(dict.fromkeys(found.tolist()))}
        return np.array([order[label] for label in found.tolist()], dtype=np.int64)

    def nearest(self, k: int) -> Floats:
        """The graph in which two clients are joined if either is among the other's k most similar,
        (N, N).
        """
        require(1 <= k < self.clients, f"k = {k} neighbours of {self.clients} clients")
        closest = np.argsort(self.misalignment + 2 * np.eye(self.clients), axis=1, kind="stable")[
            :, :k
        ]
        joined = np.zeros((self.clients, self.clients), dtype=bool)
        np.put_along_axis(joined, closest, True, axis=1)
        return np.asarray(np.where(joined | joined.T, self.adjacency, 0.0))

    def within(self, epsilon: float) -> Floats:
        """The graph in which clients with a misalignment of at most epsilon are joined, (N, N)."""
        return np.asarray(np.where(self.misalignment <= epsilon, self.adjacency, 0.0))

    def homogeneity_with(self, client: int, message: ArrayLike) -> float:
        """The homogeneity if one client's message were another, in O(N D)."""
        row = _misaligned(self.messages @ np.asarray(message, dtype=np.float64), diagonal=False)
        weights = -np.log(np.maximum(row, LEAST))
        weights[client] = 0.0
        n = self.clients
        return self.homogeneity + float(weights.sum() - self.degree[client]) / (n * (n - 1))

    def replaced(self, client: int, message: ArrayLike) -> SimilarityGraph:
        """The graph after one client's data changed: one row is computed anew, the others are
        copied.
        """
        require(0 <= client < self.clients, f"there is no client {client}")
        rows = self.messages.copy()
        rows[client] = np.asarray(message, dtype=np.float64)
        changed = SimilarityGraph(rows)
        row = _misaligned(rows @ rows[client], diagonal=False)
        row[client] = 0.0
        mis, adjacency = self.misalignment.copy(), self.adjacency.copy()
        mis[client], mis[:, client] = row, row
        weights = -np.log(np.maximum(row, LEAST)) + 0.0
        weights[client] = 0.0
        degree = self.degree - adjacency[:, client] + weights
        degree[client] = weights.sum()
        adjacency[client], adjacency[:, client] = weights, weights
        for name, value in (("misalignment", mis), ("adjacency", adjacency), ("degree", degree)):
            changed.__dict__[name] = value
        return changed


def _misaligned(products: Floats, diagonal: bool) -> Floats:
    found = np.clip((1.0 - products) / 2, 0.0, 1.0)
    if diagonal:
        np.fill_diagonal(found, 0.0)
    return np.asarray(found)
