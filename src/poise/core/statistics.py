"""Closed-form statistics of the weights that a sampler gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from poise.core.types import Floats


@dataclass(frozen=True)
class WeightStatistics:
    """First and second moments of the random weights omega_i of a sampler.

    ``alpha`` is the constant of Cov(omega_i, omega_j) = -alpha p_i p_j where the scheme has one. A
    scheme that has not gives ``pairwise``, which makes the whole matrix when it is asked for, and
    ``overlap``, the term that stands for alpha p_i^2 in gamma (E, Lemma A.4).
    """

    mean: Floats  # (N,)
    variance: Floats  # (N,)
    alpha: float | None
    sum_variance: float  # of sum_i omega_i
    expected_clients: float  # number of distinct clients in a round
    pairwise: Callable[[], Floats] | None = None
    overlap: Floats | None = None  # (N,)
    estimated: bool = False  # from draws, where there is no closed form

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
        """Sigma = sum_i Var omega_i (E, Theorem 2.1)."""
        return float(self.variance.sum())

    @property
    def gamma(self) -> float:
        """Gamma = Sigma + alpha sum_i p_i^2 (E, Theorem 2.1); with ``overlap`` where there is no
        alpha (Lemma A.4).

        nan where neither is known.
        """
        if self.overlap is not None:
            return self.sigma + float(self.overlap.sum())
        if self.alpha is None:
            return float("nan")
        return self.sigma + self.alpha * float(self.mean @ self.mean)
