"""Loss-based weights: the weighting skew, and its effect on speed and error.

Source: [Mansour 2022], [Mansour 2023].
"""

from __future__ import annotations

from math import inf, log

import numpy as np
from numpy.typing import ArrayLike

from poise.core.errors import require
from poise.theory.terms import Assumption, Problem, Terms


def weighting_skew(
    weights: ArrayLike,
    importance: ArrayLike,
    losses: ArrayLike,
    floors: ArrayLike = 0.0,
) -> float:
    """``rho = sum_i alpha_i (F_i - F_i*) / (F - sum_i p_i F_i*)``, the weighting skew.

    It is above 1 where clients with high losses count more.

    >>> weighting_skew([0.25, 0.75], [0.5, 0.5], [1.0, 3.0])
    1.25

    Source: [Mansour 2022, eq. 6], [Mansour 2023, eq. 8].
    """
    gaps = np.asarray(losses, dtype=np.float64) - np.asarray(floors, dtype=np.float64)
    below = float(np.asarray(importance, dtype=np.float64) @ gaps)
    require(
        below > 0,
        "the weighting skew is undefined where every client is at its own optimum",
    )
    return float(np.asarray(weights, dtype=np.float64) @ gaps) / below


def weight_range(weights: ArrayLike, importance: ArrayLike) -> tuple[float, float]:
    """``(pi, Pi)``: least and largest ``kappa_i = alpha_i / p_i`` where p_i > 0.

    >>> weight_range([0.25, 0.75], [0.5, 0.5])
    (0.5, 1.5)

    Source: [Mansour 2022, §2.5.2] (general bounds).
    """
    a = np.asarray(weights, dtype=np.float64)
    p = np.asarray(importance, dtype=np.float64)
    kappa = a[..., p > 0] / p[p > 0]
    return float(kappa.min()), float(kappa.max())


def largest_range(pi: float, importance: ArrayLike) -> float:
    """The largest Pi possible with pi: ``Pi <= (1 - (N - 1) pi min p) / min p``.

    >>> round(largest_range(0.5, [0.5, 0.5]), 6)
    1.5

    Source: [Mansour 2022, eq. 16].
    """
    p = np.asarray(importance, dtype=np.float64)
    return float((1 - (len(p) - 1) * pi * p.min()) / p.min())


def skew_bound(
    problem: Problem, steps: int, iterations: int, lowest: float, highest: float
) -> Terms:
    """``E F(w_T) - F* <= V/(T + g) + Err`` for weights with these skews.

    With g = 4L/mu and rates 1/(mu (t + g)): V = 4L(32 E^2 G^2 + sigma^2)/(3 mu^2 rho_)
    + 8 L^2 Gamma/mu^2 + L g |w^0 - w*|^2/2 and Err = (8 L Gamma/3 mu) (rho~/rho_ - 1).

    Args:
        problem: L, mu, sigma^2, G^2, Gamma, the distance from the optimum.
        steps: E, local steps per round.
        iterations: T, local steps in all.
        lowest: rho_, the least skew at the models of the run.
        highest: rho~, the largest skew at the optimum.

    >>> skew_bound(Problem(1.0, 1.0, 0.0, 1.0, 0.0, 4.0), 1, 96, 1.0, 1.0)["start"]
    0.08

    Source: [Mansour 2022, Cor. 1], [Mansour 2023, Cor. 4] (which print tau for E).
    Their Lemma 2 needs rates that fall by at most a half in a round, so E <= 4L/mu.
    """
    L = problem.smoothness
    mu = problem.convexity
    shift = 4 * L / mu
    late = iterations + shift
    if lowest <= 0:
        drift = inf
        tail = inf
    else:
        drift = 4 * L / (3 * mu**2 * lowest)
        tail = max(highest / lowest - 1, 0.0)
    error = 0.0
    if problem.heterogeneity:
        error = 8 * L * problem.heterogeneity / (3 * mu) * tail
    values = {
        "drift": drift * 32 * steps**2 * problem.gradient / late,
        "noise": drift * problem.noise / late,
        "heterogeneity": 8 * L**2 * problem.heterogeneity / mu**2 / late,
        "start": L * shift * problem.distance / 2 / late,
        "error": error,
    }
    return Terms(
        "loss gap with skewed weights",
        source="[Mansour 2022, Cor. 1], [Mansour 2023, Cor. 4]",
        values=values,
        assumptions=_conditions(problem, steps),
    )


def limit_speed(problem: Problem) -> float:
    """``V_min = 8 L^2 Gamma/mu^2 + L g |w^0 - w*|^2/2``: what no skew can speed up.

    With g = 4L/mu, the V of `skew_bound` falls towards it as the skew rho_ grows; for
    proportional weights V = V_min + 4L (32 E^2 G^2 + sigma^2)/(3 mu^2).

    >>> limit_speed(Problem(1.0, 1.0, heterogeneity=0.5, distance=4.0))
    12.0

    Source: [Mansour 2022, Remark 5], [Mansour 2023, eq. 12]. (Eq. 18 of [Mansour 2022]
    prints 4L - 32 tau^2 G^2 + sigma^2, where Corollary 1 has 4L (32 tau^2 G^2 +
    sigma^2).)
    """
    L = problem.smoothness
    mu = problem.convexity
    constant = 8 * L**2 * problem.heterogeneity / mu**2
    return constant + L * (4 * L / mu) * problem.distance / 2


def _conditions(problem: Problem, steps: int) -> tuple[Assumption, ...]:
    return (
        problem.strongly_convex(),
        problem.bounded(),
        Assumption("all clients take part, and the weights of a round sum to one"),
        Assumption("learning rates 1/(μ (t + 4L/μ)) at local step t"),
        Assumption(
            "E ≤ 4L/μ", bool(steps <= 4 * problem.smoothness / problem.convexity)
        ),
    )


def bounded_weights(problem: Problem, steps: int, iterations: int, pi: float) -> Terms:
    """`skew_bound` where only ``pi = min kappa`` is known.

    ``1/rho_ <= 1/pi``, ``rho~/rho_ - 1 <= 1/(pi min p) - N``.

    >>> uniform = Problem(1.0, 1.0, 0.0, 1.0, 1.0, 4.0, importance=np.array([0.5, 0.5]))
    >>> bounded_weights(uniform, 1, 96, 1.0)["error"]
    0.0

    Source: [Mansour 2022, eq. 17], [Mansour 2023, eq. 19].
    """
    require(
        problem.importance is not None,
        "the bound needs the importance of the clients",
        "give importance=",
    )
    p = np.asarray(problem.importance)
    tail = inf if pi <= 0 else max(1 / (pi * float(p.min())) - len(p), 0.0)
    error = 0.0
    if tail:
        error = (
            8
            * problem.smoothness
            * problem.heterogeneity
            / (3 * problem.convexity)
            * tail
        )
    known_skews = skew_bound(problem, steps, iterations, lowest=pi, highest=pi)
    return Terms(
        "loss gap with bounded weights",
        source="[Mansour 2022, eq. 17], [Mansour 2023, eq. 19]",
        values={**known_skews.values, "error": error},
        assumptions=known_skews.assumptions,
    )


def least_temperature(spread: float, pi: float) -> float:
    """``T = R / ln(1/pi)``: the least temperature with weights above pi * importance.

    R is the spread of the losses: kappa_i = exp(F_i/T) / sum_j p_j exp(F_j/T) >=
    exp(-R/T).

    >>> round(least_temperature(2.0, 0.5), 4)
    2.8854

    Source: from [Mansour 2022, eq. 17], where the error is bounded by a least value of
    kappa.
    """
    require(0 < pi < 1, f"pi must be between 0 and 1, not {pi}")
    return spread / log(1 / pi)
