"""FedAvg and asynchronous FedAvg after the same time, beside `fedfix_terms`.

All terms are up to numerical constants, for local rates 1/sqrt(K N), a server rate of 1
and clients of equal importance.

Source: [Fraboni 2023, §4.4].
"""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import ArrayLike

from poise.core.errors import require
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
) -> Terms:
    """The terms of asynchronous FedAvg's bound after a time T.

    With N = sum_i T/tau_i and h = tau_max/tau_min: |theta_0 - theta*|^2/sqrt(KN),
    (K-1)/N Sigma, h (R + Sigma)/sqrt(KN), h^3 K/N M^2 (R + Sigma), (W-1)/sqrt(KN).

    Args:
        tau: times of the M clients.
        time: T.
        steps: K.
        distance: |theta_0 - theta*|^2.
        residual: R, how far the clients' optima differ.
        variance: Sigma.

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
    values = {
        "start": distance / root,
        "local work": (steps - 1) / count * variance,
        "gradients": unequal * spread / root,
        "staleness": unequal**3 * steps / count * len(times) ** 2 * spread,
        "window": (window("asynchronous", tau) - 1) / root,
    }
    return Terms(
        "asynchronous FedAvg after a time",
        source="[Fraboni 2023, eq. 4.38]",
        values=values,
        assumptions=(Assumption("equal importance"),),
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
