"""The similarity graph of a federation, its spectrum and its homogeneity."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from poise.core.errors import InvalidOption, require
from poise.core.federations import ReadableFederation
from poise.core.types import Floats, Ints
from poise.graph.principal import messages

LEAST = 1e-12
"""Smallest misalignment: identical clients have the weight 27.6 = -ln 1e-12."""


def similarity(
    federation: ReadableFederation,
    labels: bool = False,
    noise: float = 0.0,
    seed: int = 0,
) -> SimilarityGraph:
    """The similarity graph of a federation, from one message per client.

    A message is the main direction of a client's data. It leaves the client and reveals
    something about the data; ``noise`` protects it. See `messages` for the arguments.
    """
    return SimilarityGraph(messages(federation, labels, noise=noise, seed=seed))


@dataclass(frozen=True)
class SimilarityGraph:
    """A graph of clients whose edges have the weights ``A_ij = -ln mis(i, j)``.

    The misalignment is ``mis(i, j) = (1 - m_i . m_j)/2``.

    Args:
        messages: (N, D), rows of length 1.

    Source: [Buttaci 2024, §3.2.2].

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
        wrong = np.flatnonzero(~(np.abs(lengths - 1) < 1e-6))
        if len(wrong):
            raise InvalidOption(
                f"the message of client {wrong[0]} does not have length 1",
                "divide every message by its norm",
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
        weights = -np.log(np.maximum(self.misalignment, LEAST)) + 0.0
        np.fill_diagonal(weights, 0.0)
        return np.asarray(weights)

    @property
    def edges(self) -> Floats:
        """``-ln mis(i, j)`` of every pair of clients i < j, (N (N - 1)/2,)."""
        return np.asarray(self.adjacency[np.triu_indices(self.clients, 1)])

    @cached_property
    def degree(self) -> Floats:
        """A 1, (N,): how similar a client is to all others together."""
        return np.asarray(self.adjacency.sum(axis=1))

    @cached_property
    def laplacian(self) -> Floats:
        """L = D - A, (N, N)."""
        return np.asarray(np.diag(self.degree) - self.adjacency)

    @cached_property
    def spectrum(self) -> Floats:
        """The eigenvalues of L, ascending, (N,); the first is 0."""
        eigenvalues = np.asarray(np.linalg.eigvalsh(self.laplacian), dtype=np.float64)
        eigenvalues[0] = 0.0
        return eigenvalues

    @property
    def homogeneity(self) -> float:
        """``tr(D) / (2 N (N - 1))``, which is half of the mean weight of an edge."""
        n = self.clients
        return float(self.degree.sum() / (2 * n * (n - 1)))

    @property
    def shares(self) -> Floats:
        """p_ij = A_ij / (1' A 1), (N, N): the weight of model j for client i."""
        return np.asarray(self.adjacency / max(self.degree.sum(), 1e-300))

    @property
    def weights(self) -> Floats:
        """p_i = sum_j p_ij, (N,): importance by degree; sums to 1."""
        return np.asarray(self.degree / self.degree.sum())

    def fit(self) -> tuple[float, float]:
        """(theta, phi) of ``-ln mis ~ N(theta, phi^2)``, by maximum likelihood."""
        return float(self.edges.mean()), float(self.edges.std())

    def typical(self) -> Ints:
        """Clients from the most to the least typical, by degree."""
        return np.argsort(-self.degree, kind="stable")

    def outliers(self, threshold: float = 3.5) -> Ints:
        """Clients whose degree is far below the median.

        Far means more than ``threshold`` robust standard deviations (MAD).
        """
        gap = self.degree - np.median(self.degree)
        deviation = 1.4826 * np.median(np.abs(gap))
        rounding = 1e-12 * max(1.0, np.abs(self.degree).max())
        return np.flatnonzero(gap < -threshold * max(deviation, rounding))

    def clusters(self, count: int) -> Ints:
        """The cluster of each client, (N,), by Ward's method [Ward 1963].

        There are ``count`` clusters, numbered in the order of their first client.
        """
        from scipy.cluster.hierarchy import fcluster, linkage

        require(
            1 <= count <= self.clients,
            f"{self.clients} clients cannot form {count} clusters",
            f"count must be 1 to {self.clients}",
        )
        labels = fcluster(
            linkage(self.messages, "ward"), count, criterion="maxclust"
        ).tolist()
        number = {label: k for k, label in enumerate(dict.fromkeys(labels))}
        return np.array([number[label] for label in labels], dtype=np.int64)

    def nearest(self, k: int) -> Floats:
        """The adjacency, (N, N), with only the edges to the k most similar clients."""
        require(
            1 <= k < self.clients,
            f"{self.clients} clients cannot have {k} neighbours each",
            f"k must be 1 to {self.clients - 1}",
        )
        others_first = self.misalignment + 2 * np.eye(self.clients)
        closest = np.argsort(others_first, axis=1, kind="stable")[:, :k]
        joined = np.zeros((self.clients, self.clients), dtype=bool)
        np.put_along_axis(joined, closest, True, axis=1)
        return np.asarray(np.where(joined | joined.T, self.adjacency, 0.0))

    def within(self, epsilon: float) -> Floats:
        """The adjacency, (N, N), with edges of misalignment at most epsilon only."""
        return np.asarray(np.where(self.misalignment <= epsilon, self.adjacency, 0.0))

    def homogeneity_with(self, client: int, message: ArrayLike) -> float:
        """The homogeneity if the client had another message, in O(N D)."""
        row = _misaligned(
            self.messages @ np.asarray(message, dtype=np.float64), diagonal=False
        )
        weights = -np.log(np.maximum(row, LEAST))
        weights[client] = 0.0
        n = self.clients
        return self.homogeneity + float(weights.sum() - self.degree[client]) / (
            n * (n - 1)
        )

    def replaced(self, client: int, message: ArrayLike) -> SimilarityGraph:
        """The graph after a client's data changed; computes only that client's row."""
        require(
            0 <= client < self.clients,
            f"there is no client {client}",
            f"clients are 0 to {self.clients - 1}",
        )
        rows = self.messages.copy()
        rows[client] = np.asarray(message, dtype=np.float64)
        changed = SimilarityGraph(rows)
        row = _misaligned(rows @ rows[client], diagonal=False)
        row[client] = 0.0
        misalignment = self.misalignment.copy()
        misalignment[client] = row
        misalignment[:, client] = row
        weights = -np.log(np.maximum(row, LEAST)) + 0.0
        weights[client] = 0.0
        degree = self.degree - self.adjacency[:, client] + weights
        degree[client] = weights.sum()
        adjacency = self.adjacency.copy()
        adjacency[client] = weights
        adjacency[:, client] = weights
        # Fill the cached properties, so that the new graph does not compute them again.
        vars(changed).update(
            misalignment=misalignment, adjacency=adjacency, degree=degree
        )
        return changed


def _misaligned(products: Floats, diagonal: bool) -> Floats:
    """Return the misalignment of inner products; ``diagonal`` zeroes the diagonal."""
    misalignment = np.clip((1.0 - products) / 2, 0.0, 1.0)
    if diagonal:
        np.fill_diagonal(misalignment, 0.0)
    return np.asarray(misalignment)
