"""FedProx, and FedAvg (alpha = 0): convergence rates and a lower bound of the error.

Source: [Buttaci 2024, §4.2].
"""

from __future__ import annotations

from math import log, sqrt
from typing import Literal

from poise.core.errors import require
from poise.theory.terms import Assumption, Problem, Terms

Rate = Literal["fixed", "falling"]


def fedprox_contraction(problem: Problem, alpha: float = 0.0) -> float:
    """``1 - mu / (3 (alpha + L))``: the share of the distance left after a round.

    At the fixed rate; alpha = 0 is FedAvg.

    >>> fedprox_contraction(Problem(2.0, 1.5), 0.5)
    0.8

    Source: [Buttaci 2024, Thm 4.1, §4.4].
    """
    return 1 - problem.convexity / (3 * (alpha + problem.smoothness))


def fedprox_bound(
    problem: Problem, alpha: float, steps: int, rounds: int, rate: Rate = "fixed"
) -> Terms:
    """``E f(w_t) - f*`` of FedProx on strongly convex losses.

    ``fixed``, gamma = 1/(2 La E): (L D/mu)(1 - mu/(3 La))^t + (L/La)(S sigma^2/(4 mu) +
    3 L Gamma/(2 mu) + 2 E^2 G^2/mu); ``falling``, gamma_t = 4/(mu E (8 La/mu + t)):
    (L/mu) (8La/mu)/(8La/mu + t) (D + S sigma^2/(La E) + 6 L Gamma/(La E) + 8 E G^2/La).
    La = alpha + L, S = sum p_i^2, D = f(w_0) - f*.

    Args:
        problem: the constants.
        alpha: strength of the pull (`poise.solvers.Prox` calls it mu); 0 is FedAvg.
        steps: E, local steps per round.
        rounds: t.
        rate: the fixed or the falling learning rate.

    >>> import numpy as np
    >>> p = Problem(1.0, 1.0, 0.0, 0.0, 0.0, gap=9.0, importance=np.array([1.0]))
    >>> round(fedprox_bound(p, 0.0, 1, 2)["start"], 6)
    4.0

    Source: [Buttaci 2024, Thm 4.1].
    """
    L = problem.smoothness
    mu = problem.convexity
    noise = problem.squares * problem.noise
    pulled = alpha + L
    spread = problem.heterogeneity
    drift = problem.gradient
    if rate == "fixed":
        scale = L / pulled
        values = {
            "start": L
            * problem.gap
            / mu
            * fedprox_contraction(problem, alpha) ** rounds,
            "noise": scale * noise / (4 * mu),
            "heterogeneity": scale * 3 * L * spread / (2 * mu),
            "drift": scale * 2 * steps**2 * drift / mu,
        }
    else:
        shift = 8 * pulled / mu
        scale = L / mu * shift / (shift + rounds)
        values = {
            "start": scale * problem.gap,
            "noise": scale * noise / (pulled * steps),
            "heterogeneity": scale * 6 * L * spread / (pulled * steps),
            "drift": scale * 8 * steps * drift / pulled,
        }
    return Terms(
        f"loss gap of FedProx, {rate} rate",
        source="[Buttaci 2024, Thm 4.1]",
        values=values,
        assumptions=_conditions(problem, rate),
    )


def _conditions(problem: Problem, rate: Rate) -> tuple[Assumption, ...]:
    rates = "learning rate 1/(2 (α + L) E)"
    if rate != "fixed":
        rates = "learning rates 4/(μ E (8 (α + L)/μ + t)) in round t"
    return (
        problem.strongly_convex(),
        problem.bounded(),
        Assumption("all clients take part, with weights p"),
        Assumption(rates),
    )


def fedprox_stationary(
    problem: Problem, alpha: float, steps: int, rounds: int, rate: Rate = "fixed"
) -> Terms:
    """``E |grad f(w)|^2`` at a random local model of FedProx, without convexity.

    ``fixed``, gamma = 1/(2 La sqrt(TE)); ``falling``, gamma_t = 1/(2 La sqrt(E) (t +
    1)).

    Args:
        problem: L, sigma^2, G^2, gap (above any lower bound of f), importance.
        alpha: strength of the pull.
        steps: E, local steps per round.
        rounds: T.
        rate: the fixed or the falling learning rate.

    >>> import numpy as np
    >>> p = Problem(1.0, noise=0.0, gradient=0.0, gap=2.0, importance=np.array([1.0]))
    >>> fedprox_stationary(p, 0.0, steps=4, rounds=16).total
    2.0

    Source: [Buttaci 2024, Thm 4.3].
    """
    L = problem.smoothness
    E = steps
    G2 = problem.gradient
    noise = problem.squares * problem.noise
    pulled = alpha + L
    if rate == "fixed":
        root = sqrt(rounds)
        values = {
            "start": 8 * pulled * problem.gap / sqrt(E) / root,
            "noise": L * noise / (pulled * sqrt(E)) / root,
            "pull": alpha * E**1.5 * G2 / pulled / root
            + alpha**2 * L * sqrt(E) * G2 / (16 * pulled**3 * rounds**1.5),
            "drift": 2 * L**2 * E * G2 / (pulled**2 * rounds),
        }
    else:
        slow = log(rounds + 1)
        values = {
            "start": 8 * pulled * problem.gap / sqrt(E) / slow,
            "noise": 2 * L * noise / (pulled * sqrt(E)) / slow,
            "pull": G2
            * (2 * alpha * E**1.5 / pulled + alpha**2 * L * sqrt(E) / (12 * pulled**3))
            / slow,
            "drift": G2 * 3 * L**2 * E / pulled**2 / slow,
        }
    rates = {
        "fixed": "1/(2 (α + L) √(T E))",
        "falling": "1/(2 (α + L) √E (t + 1)) in round t",
    }
    assumptions = (
        problem.bounded(),
        Assumption("all clients take part, with weights p"),
        Assumption(f"learning rate {rates[rate]}"),
    )
    return Terms(
        f"squared gradient of FedProx, {rate} rate",
        source="[Buttaci 2024, Thm 4.3]",
        values=values,
        assumptions=assumptions,
    )


def best_steps(problem: Problem, beta: float = 1.0) -> float:
    """``E = sqrt((S sigma^2 + 6 L Gamma) / (8 A)) / G``: the steps of least error.

    At the falling rate. A = 1 for FedAvg and FedProx with any pull; for the perturbed
    gradient A = 4 + (1 - beta)^2 + 32 (1 - 1/beta)^2. The result is not a whole number:
    round it, and take at least 1.

    Args:
        problem: L, sigma^2, G^2, Gamma, importance.
        beta: beta of the perturbed gradient; 1 for FedAvg and FedProx.

    >>> import numpy as np
    >>> round(best_steps(Problem(1.0, 1.0, 8.0, 0.04, 0.0, importance=np.array([1.0]))), 6)
    5.0

    Source: [Buttaci 2024, §4.4], with the constants of Theorem 4.1 (II) and 4.4 (II).
    """
    require(
        problem.gradient > 0,
        "the best number of steps needs a gradient bound G^2 above 0",
        "give gradient=",
    )
    factor = 1.0
    if beta != 1:
        factor = 4 + (1 - beta) ** 2 + 32 * (1 - 1 / beta) ** 2
    gain = (
        problem.squares * problem.noise + 6 * problem.smoothness * problem.heterogeneity
    )
    return sqrt(gain / (8 * factor)) / sqrt(problem.gradient)


def unavoidable_error(
    convexity: float,
    alpha: float,
    steps: int,
    rounds: int,
    rate: float,
    gap: float,
    gradient: float,
    noise: float,
    squares: float,
) -> Terms:
    """A lower bound of FedProx's error on one problem after t rounds, for small rates.

    min{ D (1 - 3 mu/(4 (alpha + mu)))^(2t), (3 mu^3 A^2 G^2/(128 E^2 (alpha + mu)^4) +
    3 mu S sigma^2/(64 E (alpha + mu)^2))/(t + 1)^2 }, A = 1 - (1 - rate (alpha +
    mu))^(E-1). Half of the clients have mu w^2/2 + G w, half mu w^2/4 - G w.

    Args:
        convexity: mu.
        alpha: strength of the pull; 0 is FedAvg.
        steps: E >= 2.
        rounds: t.
        rate: the learning rate, at most 1/(E (alpha + mu)).
        gap: D = f(w_0) - f*.
        gradient: G^2, of the linear terms.
        noise: sigma^2, of a stochastic gradient.
        squares: S = sum p_i^2.

    >>> unavoidable_error(1.0, 0.0, 2, 0, 0.5, 3.0, 4.0, 1.0, 0.5)["start"]
    3.0

    Source: [Buttaci 2024, Thm 4.2 and Lemma B.7] (which gives A).
    """
    mu = convexity
    pulled = alpha + mu
    share = 1 - (1 - rate * pulled) ** (steps - 1)
    drift = 3 * mu**3 * share**2 * gradient / (128 * steps**2 * pulled**4)
    values = {
        "start": gap * (1 - 3 * mu / (4 * pulled)) ** (2 * rounds),
        "drift and noise": (drift + 3 * mu * squares * noise / (64 * steps * pulled**2))
        / (rounds + 1) ** 2,
    }
    assumptions = (
        Assumption("E ≥ 2", steps >= 2),
        Assumption(
            "learning rate at most 1/(E (α + μ))", rate * steps * pulled <= 1 + 1e-12
        ),
    )
    return Terms(
        "lower bound of FedProx",
        source="[Buttaci 2024, Thm 4.2]",
        values=values,
        assumptions=assumptions,
        least=True,
    )
