"""FedAvg and asynchronous FedAvg after the same time, beside `fedfix_terms`; sampling.

All terms are up to numerical constants and, except in `sampled_terms`, for local rates
1/sqrt(K N), a server rate of 1 and clients of equal importance.

Source: [Fraboni 2023, §4.4].
"""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import ArrayLike

from poise.core.errors import require
from poise.core.statistics import WeightStatistics
from poise.theory.asynchronous import aggregations, window
from poise.theory.terms import Assumption, Terms


def fedavg_terms(
    tau: ArrayLike,
    time: float,
    steps: int,
    distance: float = 1.0,
    variance: float = 1.0,
) -> Terms:
    """The terms of FedAvg's bound after a time T.

    With N = T/tau_max aggregations: |theta_0 - theta*|^2/sqrt(KN), (K-1)/N Sigma and
    Sigma/(M sqrt(KN)).

    Args:
        tau: times of the M clients.
        time: T.
        steps: K.
        distance: |theta_0 - theta*|^2.
        variance: Sigma, the mean squared length of the clients' gradients at the
            optimum.

    >>> fedavg_terms([1.0, 0.5], 100.0, 1).values
    {'start': 0.1, 'local work': 0.0, 'gradients': 0.05}

    Source: [Fraboni 2023, eq. 4.33].
    """
    count = aggregations("synchronous", tau, time)
    require(count >= 1, f"no aggregation within {time}", "give more time")
    root = sqrt(steps * count)
    values = {
        "start": distance / root,
        "local work": (steps - 1) / count * variance,
        "gradients": variance / len(np.asarray(tau)) / root,
    }
    return Terms(
        "FedAvg after a time",
        source="[Fraboni 2023, eq. 4.33]",
        values=values,
        assumptions=(Assumption("equal importance"),),
        sharp=False,
    )


def asynchronous_terms(
    tau: ArrayLike,
    time: float,
    steps: int,
    distance: float = 1.0,
    residual: float = 1.0,
    variance: float = 1.0,
    printed: bool = False,
) -> Terms:
    """The terms of asynchronous FedAvg's bound after a time T.

    With N = sum_i T/tau_i and h = tau_max/tau_min: |theta_0 - theta*|^2/sqrt(KN),
    (K-1)/N Sigma, h (R + Sigma)/sqrt(KN), h^3 K/N M^2 (R + Sigma), K (W-1)/sqrt(KN).

    Args:
        tau: times of the M clients.
        time: T.
        steps: K.
        distance: |theta_0 - theta*|^2.
        residual: R, how far the clients' optima differ.
        variance: Sigma.
        printed: use (W-1)/sqrt(KN) for the window, as eq. 4.38 prints it. It loses a
            factor K: Theorem 4.3 has eta (W-1) K, and eta = 1/sqrt(KN).

    >>> asynchronous_terms([1.0, 1.0], 50.0, 1)["staleness"]
    0.08

    Source: [Fraboni 2023, eq. 4.38].
    """
    times = np.asarray(tau, dtype=np.float64)
    count = aggregations("asynchronous", tau, time)
    require(count >= 1, f"no aggregation within {time}", "give more time")
    root = sqrt(steps * count)
    spread = residual + variance
    unequal = float(times.max() / times.min())
    local = 1 if printed else steps
    values = {
        "start": distance / root,
        "local work": (steps - 1) / count * variance,
        "gradients": unequal * spread / root,
        "staleness": unequal**3 * steps / count * len(times) ** 2 * spread,
        "window": local * (window("asynchronous", tau) - 1) / root,
    }
    return Terms(
        "asynchronous FedAvg after a time",
        source="[Fraboni 2023, eq. 4.38]",
        values=values,
        assumptions=(Assumption("equal importance"),),
        sharp=False,
    )


def sampled_terms(
    weights: WeightStatistics,
    steps: int,
    rounds: float,
    rate: float,
    server_rate: float = 1.0,
    *,
    distance: float = 1.0,
    variance: float = 1.0,
) -> Terms:
    """The terms of the bound of unbiased client sampling on convex losses.

    With h = server_rate * rate, E[omega_i omega_j] = alpha p_i p_j and beta =
    max_i (E[omega_i^2]/p_i - alpha p_i): |theta_0 - theta*|^2/(h K N), alpha h max p
    Sigma, rate^2 (K-1)^2 Sigma, beta h Sigma. For equal importance max p = 1/M. All
    clients: alpha = 1, beta = 0; MD: alpha = 1 - 1/m, beta = 1/m; uniform with equal
    importance: alpha = M (m-1)/(m (M-1)), beta = (M-m)/(m (M-1)).

    Args:
        weights: of the sampler.
        steps: K.
        rounds: N, aggregations.
        rate: local learning rate.
        server_rate: eta_g.
        distance: |theta_0 - theta*|^2.
        variance: Sigma, the mean squared length of the clients' gradients at the
            optimum.

    >>> full = WeightStatistics(np.full(4, 0.25), np.zeros(4), 0.0, 0.0, 4.0)
    >>> sampled_terms(full, 1, 100, 0.1).values
    {'start': 0.1, 'together': 0.025, 'local work': 0.0, 'alone': 0.0}

    Source: [Fraboni 2023, eq. C.72, Property 4.1], with max q_i for 1/M (eq. 4.16).
    """
    require(
        weights.alpha is not None,
        "this sampler has no constant alpha: Cov(omega_i, omega_j) = -alpha p_i p_j",
        "the bound covers uniform, MD, binomial and Poisson sampling",
    )
    assert weights.alpha is not None
    p = np.asarray(weights.mean, dtype=np.float64)
    seen = p > 0
    h = server_rate * rate
    together = 1 - weights.alpha
    variances = np.asarray(weights.variance, dtype=np.float64)
    alone = float((variances[seen] / p[seen] + weights.alpha * p[seen]).max())
    values = {
        "start": distance / (h * steps * rounds),
        "together": together * h * float(p.max()) * variance,
        "local work": rate**2 * (steps - 1) ** 2 * variance,
        "alone": alone * h * variance,
    }
    return Terms(
        "loss gap of sampled clients",
        source="[Fraboni 2023, eq. C.72]",
        values=values,
        assumptions=(Assumption("the mean weights are the importance"),),
        sharp=False,
    )


def criterion_terms(
    clients: int,
    window: float,
    steps: int,
    rounds: float,
    distance: float = 1.0,
    variance: float = 1.0,
) -> Terms:
    """The terms of FedAvg where a criterion selects clients, balanced over a window.

    A server may select clients with large losses or fast hardware if it uses the rest
    of every W aggregations so that the weights of the window add up to the importance:
    |theta_0 - theta*|^2/sqrt(KN), (K-1)/N Sigma, Sigma/(M sqrt(KN)), K (W-1)/sqrt(KN).

    Args:
        clients: M.
        window: W, aggregations after which the weights are balanced.
        steps: K.
        rounds: N, aggregations.
        distance: |theta_0 - theta*|^2.
        variance: Sigma.

    >>> criterion_terms(2, window=3, steps=4, rounds=100)["window"]
    0.4

    Source: [Fraboni 2023, eq. C.73], eta (W-1) K for eta = 1/sqrt(KN).
    """
    require(window >= 1, f"a window of {window} aggregations", "give at least 1")
    root = sqrt(steps * rounds)
    values = {
        "start": distance / root,
        "local work": (steps - 1) / rounds * variance,
        "gradients": variance / clients / root,
        "window": steps * (window - 1) / root,
    }
    return Terms(
        "FedAvg with a criterion, balanced over a window",
        source="[Fraboni 2023, eq. C.73]",
        values=values,
        assumptions=(
            Assumption("equal importance"),
            Assumption("the weights of every window add up to the importance"),
        ),
        sharp=False,
    )


def converging_rates(
    window_growth: float, staleness_growth: float
) -> tuple[float, float]:
    """The open interval of c for which local rates N^-c make the bound vanish.

    The windows grow like N^a and the staleness like N^b: max(a, b) < c < 1. The
    interval is empty (its ends are equal) where a or b is 1 or more.

    Args:
        window_growth: a >= 0.
        staleness_growth: b >= 0.

    >>> converging_rates(0.0, 0.5), converging_rates(1.0, 0.0)
    ((0.5, 1.0), (1.0, 1.0))

    Source: [Fraboni 2023, Cor. 4.2].
    """
    require(
        min(window_growth, staleness_growth) >= 0,
        f"growth of {min(window_growth, staleness_growth)}",
        "windows and staleness do not shrink: give exponents from 0 on",
    )
    return min(max(window_growth, staleness_growth), 1.0), 1.0
