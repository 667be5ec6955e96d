"""The perturbed gradient: faster convergence to a larger error [Buttaci 2024, §4.3]."""

from __future__ import annotations

from math import log, sqrt

from poise.core.errors import require
from poise.theory.proximal import Rate
from poise.theory.terms import Assumption, Problem, Terms


def perturbed_contraction(problem: Problem, beta: float) -> float:
    """``1 - mu / ((beta + 2) L)``: the share of the distance left after a round.

    At the fixed rate; beta = 1 is FedAvg.

    >>> perturbed_contraction(Problem(2.0, 1.0), 0.5)
    0.8

    Source: [Buttaci 2024, Thm 4.4, §4.4].
    """
    return 1 - problem.convexity / ((beta + 2) * problem.smoothness)


def _spread(beta: float, rate: Rate) -> float:
    """A = 4 + (1 - beta)^2 + (8 or 32)(1 - 1/beta)^2."""
    require(0 < beta <= 1, f"beta must be in (0, 1], not {beta}")
    return 4 + (1 - beta) ** 2 + (8 if rate == "fixed" else 32) * (1 - 1 / beta) ** 2


def perturbed_bound(
    problem: Problem, beta: float, steps: int, rounds: int, rate: Rate = "fixed"
) -> Terms:
    """``E f(w_t) - f*`` of the perturbed gradient on strongly convex losses.

    ``fixed``, gamma = 1/(2 L E): (L D/mu)(1 - mu/((beta + 2) L))^t + S sigma^2/(4 mu) +
    3 L Gamma/(2 mu) + 2 A E^2 G^2/mu + beta (1 - beta) E G^2/(8 L); ``falling``,
    gamma_t = 4/(mu E (8L/mu + t)): (L/mu) (8L/mu)/(8L/mu + t) (D + S sigma^2/(L E) + 6
    Gamma/E + 8 A E G^2/L + mu beta (1 - beta) G^2/(2 L^2)).

    Args:
        problem: the constants.
        beta: the share of the client's own model, in (0, 1].
        steps: E, local steps per round.
        rounds: t.
        rate: the fixed or the falling learning rate.

    >>> import numpy as np
    >>> p = Problem(1.0, 1.0, 0.0, 1.0, 0.0, gap=0.0, importance=np.array([1.0]))
    >>> perturbed_bound(p, 1.0, 1, 2).total
    8.0

    Source: [Buttaci 2024, Thm 4.4].
    """
    L = problem.smoothness
    mu = problem.convexity
    G2 = problem.gradient
    noise = problem.squares * problem.noise
    apart = _spread(beta, rate)
    mixed = beta * (1 - beta)
    if rate == "fixed":
        values = {
            "start": L
            * problem.gap
            / mu
            * perturbed_contraction(problem, beta) ** rounds,
            "noise": noise / (4 * mu),
            "heterogeneity": 3 * L * problem.heterogeneity / (2 * mu),
            "drift": 2 * apart * steps**2 * G2 / mu,
            "perturbation": mixed * steps * G2 / (8 * L),
        }
    else:
        shift = 8 * L / mu
        scale = L / mu * shift / (shift + rounds)
        values = {
            "start": scale * problem.gap,
            "noise": scale * noise / (L * steps),
            "heterogeneity": scale * 6 * problem.heterogeneity / steps,
            "drift": scale * 8 * apart * steps * G2 / L,
            "perturbation": scale * mu * mixed * G2 / (2 * L**2),
        }
    rates = {
        "fixed": "learning rate 1/(2 L E)",
        "falling": "learning rates 4/(μ E (8L/μ + t)) in round t",
    }
    assumptions = (
        problem.strongly_convex(),
        problem.bounded(),
        Assumption("all clients take part, with the weights of the graph"),
        Assumption(rates[rate]),
    )
    return Terms(
        f"loss gap of the perturbed gradient, {rate} rate",
        source="[Buttaci 2024, Thm 4.4]",
        values=values,
        assumptions=assumptions,
    )


def perturbed_stationary(
    problem: Problem, beta: float, steps: int, rounds: int, rate: Rate = "fixed"
) -> Terms:
    """``E |grad f(w)|^2`` at a random local model of the perturbed gradient.

    ``fixed``, gamma = 1/(2 L sqrt(TE)): (4 L D + S sigma^2/2)/sqrt(T E) + A E G^2/T;
    ``falling``, gamma_t = 1/(2 L sqrt(E)(t + 1)): (4 L D/sqrt(E) + S sigma^2/sqrt(E) +
    3 A E G^2/8)/ln(T + 1).

    Args:
        problem: L, sigma^2, G^2, gap (above any lower bound of f), importance.
        beta: the share of the client's own model, in (0, 1].
        steps: E, local steps per round.
        rounds: T.
        rate: the fixed or the falling learning rate.

    >>> import numpy as np
    >>> p = Problem(1.0, noise=0.0, gradient=0.0, gap=2.0, importance=np.array([1.0]))
    >>> perturbed_stationary(p, 0.5, 4, 16).total
    1.0

    Source: [Buttaci 2024, Thm 4.6].
    """
    E = steps
    noise = problem.squares * problem.noise
    drift = E * problem.gradient * _spread(beta, rate)
    start = 4 * problem.smoothness * problem.gap / sqrt(E)
    if rate == "fixed":
        slow = sqrt(rounds)
        values = {
            "start": start / slow,
            "noise": noise / (2 * sqrt(E)) / slow,
            "drift": drift / rounds,
        }
    else:
        slow = log(rounds + 1)
        values = {
            "start": start / slow,
            "noise": noise / sqrt(E) / slow,
            "drift": 3 * drift / 8 / slow,
        }
    rates = {"fixed": "1/(2 L √(T E))", "falling": "1/(2 L √E (t + 1)) in round t"}
    assumptions = (
        problem.bounded(),
        Assumption("all clients take part, with the weights of the graph"),
        Assumption(f"learning rate {rates[rate]}"),
    )
    return Terms(
        f"squared gradient of the perturbed gradient, {rate} rate",
        source="[Buttaci 2024, Thm 4.6]",
        values=values,
        assumptions=assumptions,
    )


def best_steps_nonconvex(problem: Problem, rounds: int, beta: float = 1.0) -> float:
    """``E = (A/(2B))^(2/3) T^(1/3)``: the steps with the least bound on the gradient.

    After T rounds, with A = 4 L D + S sigma^2/2 and B = G^2 (4 + (1 - beta)^2 + 8 (1 -
    1/beta)^2). The result is not a whole number.

    Args:
        problem: L, sigma^2, G^2, gap, importance.
        rounds: T.
        beta: beta of the perturbed gradient; 1 for FedAvg.

    >>> import numpy as np
    >>> p = Problem(1.0, noise=0.0, gradient=1.0, gap=2.0, importance=np.array([1.0]))
    >>> round(best_steps_nonconvex(p, 27), 6)
    3.0

    Source: [Buttaci 2024, Cor. 4.1].
    """
    gain = 4 * problem.smoothness * problem.gap + problem.squares * problem.noise / 2
    loss = problem.gradient * _spread(beta, "fixed")
    require(
        loss > 0,
        "the best number of steps needs a gradient bound G^2 above 0",
        "give gradient=",
    )
    return float((gain / (2 * loss)) ** (2 / 3) * rounds ** (1 / 3))


def unavoidable_perturbed_error(
    convexity: float,
    beta: float,
    steps: int,
    rounds: int,
    rate: float,
    gap: float,
    gradient: float,
    noise: float,
    squares: float,
) -> Terms:
    """A lower bound of the perturbed gradient's error, as in `unavoidable_error`.

    min{ D (beta/4)^(2t), (3 A^2 G^2/(128 E^2 mu) + 3 S sigma^2/(64 E mu))/(t + 1)^2 },
    A = 1 - (1 - rate beta mu)^(E-1), where the neighbours' mean is the model itself.

    Args:
        convexity: mu.
        beta: the share of the client's own model.
        steps: E >= 2.
        rounds: t.
        rate: the learning rate, at most 1/(E mu).
        gap: D = f(w_0) - f*.
        gradient: G^2, of the linear terms.
        noise: sigma^2, of a stochastic gradient.
        squares: S = sum p_i^2.

    >>> unavoidable_perturbed_error(1.0, 0.5, 2, 0, 0.5, 3.0, 4.0, 1.0, 0.5)["start"]
    3.0

    Source: [Buttaci 2024, Thm 4.5] (appendix C.4).
    """
    mu = convexity
    share = 1 - (1 - rate * beta * mu) ** (steps - 1)
    drift = 3 * share**2 * gradient / (128 * steps**2 * mu)
    values = {
        "start": gap * (beta / 4) ** (2 * rounds),
        "drift and noise": (drift + 3 * squares * noise / (64 * steps * mu))
        / (rounds + 1) ** 2,
    }
    assumptions = (
        Assumption("E ≥ 2", steps >= 2),
        Assumption("learning rate at most 1/(E μ)", rate * steps * mu <= 1 + 1e-12),
    )
    return Terms(
        "lower bound of the perturbed gradient",
        source="[Buttaci 2024, Thm 4.5]",
        values=values,
        assumptions=assumptions,
        least=True,
    )
