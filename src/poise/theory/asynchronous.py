"""Asynchronous learning: how often clients contribute, and the cost of staleness.

Source: [Fraboni 2023, ch. 4].
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil, gcd, inf, lcm, sqrt
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from poise.core.durations import SAME
from poise.core.errors import require
from poise.core.types import Floats
from poise.theory.terms import Assumption, Problem, Terms

Scheme = Literal["synchronous", "asynchronous", "fixed-window"]

LARGEST = 10**15
"""Windows longer than this count as infinite."""

FINEST = 10_000
"""Times with a larger denominator have no common measure."""


def window(scheme: Scheme, tau: ArrayLike, dt: float | None = None) -> float:
    """W: the number of aggregations after which the schedule repeats itself.

    Synchronous 1; asynchronous ``sum_i nu/tau_i`` with nu = lcm(tau); FedFix
    ``lcm(ceil(tau_i/dt))``. inf where the times have no common measure.

    Args:
        scheme: the clock.
        tau: times of the clients.
        dt: length of a window, for FedFix.

    >>> window("asynchronous", [1.0, 0.5, 0.2]), window("fixed-window", [1.0, 0.5, 0.2], 0.4)
    (8.0, 6.0)

    Source: [Fraboni 2023, eq. 4.35, §4.4.4, Table 4.2].
    """
    times = np.asarray(tau, dtype=np.float64)
    if scheme == "synchronous":
        return 1.0
    if scheme == "fixed-window":
        return _common_multiple(windows_of(times, dt).astype(int).tolist())
    fractions = [Fraction(float(t)).limit_denominator(FINEST) for t in times]
    if not np.allclose([float(f) for f in fractions], times, rtol=1e-12, atol=0):
        return inf
    denominator = lcm(*(f.denominator for f in fractions))
    whole = [int(f * denominator) for f in fractions]
    unit = gcd(*whole)
    periods = [w // unit for w in whole]
    common = _common_multiple(periods)
    if common == inf:
        return inf
    return float(sum(int(common) // period for period in periods))


def windows_of(tau: Floats, dt: float | None) -> Floats:
    """``ceil(tau_i / dt)``: work that ends exactly with a window belongs to it."""
    length = _window_length(dt)
    return np.ceil(np.asarray(tau, dtype=np.float64) / length * (1 - SAME))


def _window_length(dt: float | None) -> float:
    require(
        dt is not None and dt > 0, "FedFix needs the length of a window", "give dt="
    )
    assert dt is not None
    return dt


def _common_multiple(numbers: Sequence[int]) -> float:
    """Return the least common multiple; inf above LARGEST."""
    multiple = 1
    for n in set(numbers):
        multiple = lcm(multiple, n)
        if multiple > LARGEST:
            return inf
    return float(multiple)


def staleness(scheme: Scheme, tau: ArrayLike, dt: float | None = None) -> float:
    """The largest staleness ``n - rho_i(n)``.

    Synchronous 0; asynchronous ``sum_{j != i} ceil(tau_i/tau_j)`` of the slowest
    client; FedFix ``ceil(tau_max/dt) - 1``. (The paper counts FedFix's staleness from
    1, as ceil(tau_max/dt); a client that answers in the window in which it started has
    used the newest model.)

    >>> staleness("asynchronous", [1.0, 0.5]), staleness("fixed-window", [1.0, 0.5], 0.4)
    (2.0, 2.0)

    Source: [Fraboni 2023, eq. 4.34, §4.4.4].
    """
    times = np.asarray(tau, dtype=np.float64)
    if scheme == "synchronous":
        return 0.0
    if scheme == "fixed-window":
        return float(windows_of(times, dt).max() - 1)
    slowest = int(times.argmax())
    others = np.delete(times, slowest)
    return float(np.ceil(times[slowest] / others * (1 - SAME)).sum())


def aggregations(
    scheme: Scheme, tau: ArrayLike, time: float, dt: float | None = None
) -> float:
    """Aggregations in a time T: ``T/tau_max``, ``sum_i T/tau_i`` or ``T/dt``, floored.

    >>> aggregations("asynchronous", [1.0, 0.5], 4.0)
    12.0
    >>> aggregations("fixed-window", [1.0, 0.5], 4.0, dt=0.5)
    8.0

    Source: [Fraboni 2023, eq. 4.39, Table 4.2].
    """
    times = np.asarray(tau, dtype=np.float64)
    if scheme == "fixed-window":
        return float(np.floor(time / _window_length(dt) * (1 + SAME)))
    if scheme == "synchronous":
        return float(np.floor(time / times.max() * (1 + SAME)))
    return float(np.floor(time / times * (1 + SAME)).sum())


def participation(scheme: Scheme, tau: ArrayLike, dt: float | None = None) -> Floats:
    """f_i: the share of aggregations to which client i contributes.

    Synchronous 1; asynchronous ``(1/tau_i)/sum_j 1/tau_j``; FedFix
    ``1/ceil(tau_i/dt)``.

    >>> participation("asynchronous", [1.0, 0.25])
    array([0.2, 0.8])

    Source: [Fraboni 2023, §4.4]: unbiased weights are d_i = p_i / f_i.
    """
    times = np.asarray(tau, dtype=np.float64)
    if scheme == "synchronous":
        return np.ones(len(times))
    if scheme == "fixed-window":
        return np.asarray(1 / windows_of(times, dt))
    return np.asarray((1 / times) / (1 / times).sum())


def asynchronous_bound(
    problem: Problem,
    steps: int,
    rounds: float,
    rate: float,
    *,
    staleness: float,
    window: float,
    covariance: float,
    excess: float,
    residual: float,
    variance: float,
    largest: float,
    server_rate: float = 1.0,
    sum_of_weights: float = 1.0,
) -> Terms:
    """``(1/N) sum_n (1/K) sum_k E L~(theta_nk) - L~(theta~)``, the mean loss gap.

    It is at most e_F + e_K + e_alpha + e_beta + e_W. With the constants of the proof: h
    = server_rate * rate, r = max(1, sum_of_weights), D = 6 rate^2 (K-1)^2 L^2, s = 4 L
    R + 2 Sigma, g = h + 16 r L h^2 K^2 tau^2; e_F = |theta_0 - theta~|^2/(h K N), e_K =
    4 D R + 6 r rate^2 (K-1)^2 L s, e_alpha = alpha g (24 r L R + (3 r^2 D + 6 r^2 max
    q) s), e_beta = beta g (12 r L R + 6 r^2 s), e_W = r h K (W-1) G^2.

    Args:
        problem: L, G^2, the distance of the start from the optimum of L~.
        steps: K.
        rounds: N, aggregations.
        rate: local learning rate.
        staleness: tau, the largest.
        window: W.
        covariance: alpha: 1 for synchronous learning and FedFix, 0 where every arrival
            is an aggregation of its own.
        excess: beta = max(d_i - alpha q_i): 0 for the former, max d_i for the latter.
        residual: R, how far the objectives of single aggregations are from their mean,
            at the optimum of that mean.
        variance: Sigma = sum_i q_i E |grad L_i(theta~, xi)|^2.
        largest: max_i q_i(n).
        server_rate: eta_g.
        sum_of_weights: the largest sum_i q_i(n) of an aggregation.

    >>> calm = Problem(1.0, gradient=1.0, distance=4.0)
    >>> schedule = {"staleness": 0, "window": 1, "covariance": 1, "excess": 0}
    >>> noise = {"residual": 0, "variance": 0.0, "largest": 0.5}
    >>> asynchronous_bound(calm, 1, 100, 0.01, **schedule, **noise).total
    4.0

    Source: [Fraboni 2023, Thm 4.1 and 4.3]; constants of eq. C.58 and C.61, eq. 4.24
    for e_W, eq. C.63 for the learning rate.
    """
    L = problem.smoothness
    K = steps
    h = server_rate * rate
    r = max(1.0, sum_of_weights)
    drift = 6 * rate**2 * (K - 1) ** 2 * L**2
    spread = 4 * L * residual + 2 * variance
    late = h + 16 * r * L * h**2 * K**2 * staleness**2
    squared = 3 * drift + 6 * largest
    values = {
        "start": problem.distance / (h * K * rounds),
        "local work": 4 * drift * residual
        + 6 * r * rate**2 * (K - 1) ** 2 * L * spread,
        "together": covariance
        * late
        * (24 * r * L * residual + r**2 * squared * spread),
        "alone": excess * late * (12 * r * L * residual + 6 * r**2 * spread),
        "window": r * h * K * (window - 1) * problem.gradient if window > 1 else 0.0,
    }
    most = min(1.0, 1 / (3 * r**2 * server_rate * (staleness + 1))) / (48 * K * L)
    assumptions = (
        Assumption(
            "every client's loss is smooth and convex", problem.convexity >= 0 or None
        ),
        Assumption(f"learning rate at most {most:.3g}", bool(rate <= most)),
        Assumption(
            (
                "the schedule repeats itself after W aggregations, and W divides their "
                "number"
            ),
            window < inf,
        ),
    )
    return Terms(
        "mean loss gap with stale updates",
        source="[Fraboni 2023, Thm 4.3]",
        values=values,
        assumptions=assumptions,
    )


def surrogate_gap(
    problem: Problem, chi2: float, heterogeneity: float, surrogate: float
) -> Terms:
    """``|grad L|^2`` of the objective L while a run minimises the surrogate L~.

    It is at most ``4L chi^2 (L~(theta) - sum q~_i F_i*) + 4L (L~ - L~*)``.

    Args:
        problem: L.
        chi2: chi^2 between importance and objective, from `chi_squared`.
        heterogeneity: L~(theta~) - sum_i q~_i F_i*.
        surrogate: L~(theta) - L~(theta~), how far the surrogate is from its optimum.

    >>> surrogate_gap(Problem(1.0), 0.5, 1.0, 0.0).total
    2.0

    Source: [Fraboni 2023, Thm 4.2, Lemma C.7 and eq. C.70], where every client
    contributes.
    """
    L = problem.smoothness
    values = {
        "surrogate": 4 * L * chi2 * heterogeneity,
        "optimisation": 4 * L * (chi2 + 1) * surrogate,
    }
    assumptions = (
        Assumption("every client's loss is smooth"),
        Assumption("every client contributes", chi2 < inf),
    )
    return Terms(
        "squared gradient of the intended objective",
        source="[Fraboni 2023, Thm 4.2]",
        values=values,
        assumptions=assumptions,
    )


def fedfix_terms(
    tau: ArrayLike,
    dt: float,
    time: float,
    steps: int,
    distance: float = 1.0,
    residual: float = 1.0,
    variance: float = 1.0,
    printed: bool = False,
) -> Terms:
    """The terms of FedFix's bound after a time T, up to numerical constants.

    With N = T/dt and t = ceil(tau_max/dt): |theta_0 - theta*|^2/sqrt(KN), (K-1)/N (R +
    Sigma), (1/sqrt(KN) + K t^2/N)(R + t Sigma/M), K (W-1)/sqrt(KN). The first two fall
    with more aggregations, that is with a short dt, the others with fresher updates.

    Args:
        tau: times of the clients.
        dt: length of a window.
        time: T.
        steps: K.
        distance: |theta_0 - theta*|^2.
        residual: R.
        variance: Sigma.
        printed: use (W-1)/sqrt(KN) for the window, as eq. 4.42 prints it. It loses a
            factor K: Theorem 4.3 has eta (W-1) K, and eta = 1/sqrt(KN).

    >>> fedfix_terms([1.0, 1.0], 1.0, 100.0, 1)["window"]
    0.0

    Source: [Fraboni 2023, eq. 4.42].
    """
    count = aggregations("fixed-window", tau, time, dt)
    late = staleness("fixed-window", tau, dt) + 1
    require(
        count >= 1, f"no window of length {dt} ends within {time}", "give a shorter dt"
    )
    root = sqrt(steps * count)
    local = 1 if printed else steps
    spread = residual + late * variance / len(np.asarray(tau))
    values = {
        "start": distance / root,
        "local work": (steps - 1) / count * (residual + variance),
        "staleness": (1 / root + steps / count * late**2) * spread,
        "window": local * (window("fixed-window", tau, dt) - 1) / root,
    }
    return Terms(
        "FedFix after a time",
        source="[Fraboni 2023, eq. 4.42]",
        values=values,
        assumptions=(Assumption("equal importance"),),
        sharp=False,
    )


def best_window(
    tau: ArrayLike, time: float, steps: int, *, parts: int = 10, **constants: float
) -> float:
    """The dt with the least `fedfix_terms` among ``tau_max/k``, k = 1 … parts.

    Of equal ones, the longest.

    >>> best_window([1.0, 1.0, 1.0], 100.0, 5)
    1.0

    Source: from [Fraboni 2023, eq. 4.42], whose minimum has no closed form.
    """
    longest = float(np.asarray(tau, dtype=np.float64).max())
    lengths = [longest / k for k in range(1, parts + 1)]
    candidates = [dt for dt in lengths if ceil(dt) and dt <= time]
    require(
        len(candidates) > 0,
        f"no window ends within {time}",
        "give more time, or more parts",
    )

    def total(dt: float) -> float:
        return fedfix_terms(tau, dt, time, steps, printed=False, **constants).total

    return min(candidates, key=total)
