"""Client sampling: the cost of the variance of the weights [Fraboni 2023, ch. 2]."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from poise.core.errors import require
from poise.core.statistics import WeightStatistics
from poise.theory.terms import Assumption, Problem, Terms


def uniform_beats_md(importance: ArrayLike, m: int) -> tuple[float, float]:
    """``(sum p_i^2, 1/(N - m + 1))``: uniform is better iff the first is not larger.

    "Better" compares the bounds of uniform and MD sampling.

    >>> uniform_beats_md([0.5, 0.25, 0.25], 1)
    (0.375, 0.3333333333333333)

    Source: [Fraboni 2023, Cor. 2.1].
    """
    p = np.asarray(importance, dtype=np.float64)
    return float(p @ p), 1 / (len(p) - m + 1)


def sampling_bound(
    problem: Problem,
    weights: WeightStatistics,
    steps: int,
    rounds: int,
    rate: float,
    server_rate: float = 1.0,
    dissimilarity: tuple[float, float] = (1.0, 0.0),
) -> Terms:
    """``(1/T) sum_t E |grad L(theta_t)|^2`` of FedAvg with sampled clients.

    With the constants of the proof, h = server_rate * rate and O = 3/2 L h gamma K b2
    <= 1/2, 1/(1 - O) times: 4 D/(h K T) + 2 L h (Sigma + sum p_i^2) sigma^2 + 3 rate^2
    L^2 (K-1) sigma^2 + 6 rate^2 L^2 K (K-1) k2 + 3 L h gamma (K-1) sigma^2 + 6 L h
    gamma K k2.

    Args:
        problem: L, sigma^2, gap, importance; losses need not be convex.
        weights: of the sampler: Sigma, gamma, alpha.
        steps: K, the same for all.
        rounds: T.
        rate: local learning rate.
        server_rate: eta_g.
        dissimilarity: (b2, k2) with sum_i w_i |grad L_i|^2 <= b2 |grad L|^2 + k2 for
            all weights w that sum to one.

    >>> full = WeightStatistics(np.array([1.0]), np.zeros(1), 0.0, 0.0, 1.0)
    >>> single = Problem(1.0, noise=0.0, gap=2.0, importance=np.array([1.0]))
    >>> sampling_bound(single, full, steps=1, rounds=8, rate=0.1).total
    10.0

    Source: [Fraboni 2023, Thm 2.1]; constants of eq. A.98, learning rates of eq. A.99
    to A.101.
    """
    L = problem.smoothness
    K = steps
    noise = problem.noise
    b2, k2 = dissimilarity
    h = server_rate * rate
    gamma = weights.gamma
    loosened = 1.5 * L * h * gamma * K * b2
    scale = float("inf")
    if loosened < 1:
        scale = 1 / (1 - loosened)
    sampling = 0.0
    if gamma:
        sampling = scale * 3 * L * h * gamma * ((K - 1) * noise + 2 * K * k2)
    values = {
        "start": scale * 4 * problem.gap / (h * K * rounds),
        "noise": scale * 2 * L * h * (weights.sigma + problem.squares) * noise,
        "local noise": scale * 3 * rate**2 * L**2 * (K - 1) * noise,
        "drift": scale * 6 * rate**2 * L**2 * K * (K - 1) * k2,
        "sampling": sampling,
    }
    alpha = 0.0 if weights.alpha is None else weights.alpha
    means_p = problem.importance is not None and np.allclose(
        weights.mean, problem.importance, rtol=1e-9
    )
    assumptions = (
        Assumption("the sampler is unbiased", bool(means_p)),
        Assumption("every client makes the same number of plain SGD steps"),
        Assumption(
            "2 (2 β² + 1) η² L² K² < 1",
            bool(2 * (2 * b2 + 1) * rate**2 * L**2 * K**2 < 1),
        ),
        Assumption("L η_g η (1 − α) K < 1", bool(L * h * (1 - alpha) * K < 1)),
        Assumption("3 L η_g η γ K β² ≤ 1", bool(2 * loosened <= 1)),
    )
    return Terms(
        "mean squared gradient with sampled clients",
        source="[Fraboni 2023, Thm 2.1]",
        values=values,
        assumptions=assumptions,
    )


def variance_ratio(weights: WeightStatistics, other: WeightStatistics) -> float:
    """The ratio of two schemes' Sigma: how much noisier the first one's weights are.

    >>> loud = WeightStatistics(np.ones(1), np.array([0.5]), 0.0, 0.0, 1.0)
    >>> quiet = WeightStatistics(np.ones(1), np.array([0.25]), 0.0, 0.0, 1.0)
    >>> variance_ratio(loud, quiet)
    2.0
    """
    if other.sigma > 0:
        return weights.sigma / other.sigma
    return float("inf")


def md_gradient_variance(importance: ArrayLike, gradients: ArrayLike, m: int) -> float:
    """``B_MD = E |1/m sum_k grad L_lk - grad L|^2`` of MD sampling, at one model.

    ``1/m (sum_i p_i |grad L_i|^2 - |grad L|^2)`` with grad L = sum_i p_i grad L_i.

    Args:
        importance: p, (N,).
        gradients: grad L_i, (N, d).
        m: draws per round.

    >>> md_gradient_variance([0.5, 0.5], [[1.0], [-1.0]], 2)
    0.5

    Source: [Fraboni 2023, eq. B.9].
    """
    p = np.asarray(importance, dtype=np.float64)
    return clustered_gradient_variance(np.tile(p, (m, 1)), gradients)


def clustered_gradient_variance(
    distributions: ArrayLike, gradients: ArrayLike
) -> float:
    """``B_Cl = E |1/m sum_k grad L_lk - grad L|^2`` of clustered sampling, at one model.

    ``1/m^2 (sum_i m p_i |grad L_i|^2 - sum_k |grad L_Wk|^2)`` with grad L_Wk =
    sum_i r_ki grad L_i and m p_i = sum_k r_ki. It is at most `md_gradient_variance`,
    and equal to it if and only if all grad L_Wk are the same. (The paper adds: only if
    the clients' data are the same or every W_k is p. Clusters of different clients
    whose mean gradients agree are equal, too.)

    Args:
        distributions: r_ki, (m, N); rows sum to 1.
        gradients: grad L_i, (N, d).

    >>> clustered_gradient_variance([[1.0, 0.0], [0.0, 1.0]], [[1.0], [-1.0]])
    0.0

    Source: [Fraboni 2023, eq. B.16].
    """
    r = np.asarray(distributions, dtype=np.float64)
    require(
        bool((r >= 0).all()) and bool(np.allclose(r.sum(axis=1), 1)),
        "every row of the distributions must be at least 0 and sum to 1",
    )
    g = np.asarray(gradients, dtype=np.float64)
    m = len(r)
    squares = float(r.sum(axis=0) @ np.square(g).sum(axis=1))
    within = float(np.square(r @ g).sum())
    return max(squares - within, 0.0) / m**2
