"""Closed-form statistics of the weights of a sampler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from poise.core.errors import require
from poise.core.types import Floats


@dataclass(frozen=True)
class WeightStatistics:
    """First and second moments of the random weights omega_i of a sampler.

    ``alpha`` is the constant of Cov(omega_i, omega_j) = -alpha p_i p_j. A sampler
    without such a constant gives ``pairwise``, which computes the whole matrix, and
    ``overlap``, the term in place of alpha p_i^2 in gamma [Fraboni 2023, Lemma A.4].
    """

    mean: Floats  # (N,)
    variance: Floats  # (N,)
    alpha: float | None
    sum_variance: float  # of sum_i omega_i
    expected_clients: float  # number of distinct clients in a round
    pairwise: Callable[[], Floats] | None = None
    overlap: Floats | None = None  # (N,)
    estimated: bool = False  # from draws, for lack of a closed form

    @property
    def covariance(self) -> Floats:
        """The whole matrix, (N, N), with the variances on the diagonal."""
        if self.pairwise is not None:
            return self.pairwise()
        assert self.alpha is not None
        matrix = -self.alpha * np.outer(self.mean, self.mean)
        np.fill_diagonal(matrix, self.variance)
        return matrix

    @property
    def sigma(self) -> float:
        """Sigma = sum_i Var omega_i [Fraboni 2023, Thm 2.1]."""
        return float(self.variance.sum())

    @property
    def gamma(self) -> float:
        """Gamma = Sigma + alpha sum_i p_i^2 [Fraboni 2023, Thm 2.1].

        Without alpha, ``overlap`` takes its place (Lemma A.4); nan if neither is known.
        """
        if self.overlap is not None:
            return self.sigma + float(self.overlap.sum())
        if self.alpha is None:
            return float("nan")
        return self.sigma + self.alpha * float(self.mean @ self.mean)


def uniform_statistics(
    importance: Floats, m: int, share: float = 1.0
) -> WeightStatistics:
    """Return the moments of ``omega_i = share (N/m) p_i`` for m of N clients, all equally likely.

    >>> uniform_statistics(np.array([0.5, 0.5]), 1).alpha
    1.0
    """
    p = np.asarray(importance, dtype=np.float64)
    n = len(p)
    require(m <= n, f"m = {m} clients per round, but there are {n}")
    alpha = 0.0
    if n > 1:
        alpha = (n - m) / (m * (n - 1))
    return WeightStatistics(
        share * p,
        share**2 * (n / m - 1) * p**2,
        alpha=alpha,
        sum_variance=share**2 * alpha * (n * float(p @ p) - 1),
        expected_clients=float(m),
    )
