"""Weights that vary over time: speed against error [Exp-α 2023]."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from poise.core.types import Floats
from poise.theory.terms import Assumption, Problem, Terms


def speed_and_error(
    weights: ArrayLike,
    losses: ArrayLike,
    losses_at_optimum: ArrayLike,
    floors: ArrayLike,
) -> tuple[float, float]:
    """``(Omega, Gamma)``: weighted loss gaps during a run, and at the optimum.

    Omega = min_t sum_i rho_i (F_i(w_t) - F_i*) and Gamma = max_t sum_i rho_i (F_i(w*) -
    F_i*).

    Args:
        weights: rho_i of each round, (R, N).
        losses: F_i(w_t), (R, N).
        losses_at_optimum: F_i(w*), (N,).
        floors: F_i*, (N,).

    >>> weights = [[0.5, 0.5], [0.25, 0.75]]
    >>> speed_and_error(weights, [[4.0, 4.0], [2.0, 2.0]], [1.0, 3.0], floors=[0.0, 0.0])
    (2.0, 2.5)

    Source: [Exp-α 2023, Thm 1].
    """
    rho = np.atleast_2d(np.asarray(weights, dtype=np.float64))
    during = np.atleast_2d(np.asarray(losses, dtype=np.float64))
    least = np.atleast_2d(np.asarray(floors, dtype=np.float64))
    at_optimum = np.asarray(losses_at_optimum, dtype=np.float64)
    omega = (rho * (during - least)).sum(axis=1).min()
    gamma = (rho * (at_optimum - least)).sum(axis=1).max()
    return float(omega), float(gamma)


def varying_bound(
    problem: Problem,
    steps: int,
    iterations: int,
    omega: float,
    gamma: float,
    largest: ArrayLike,
    cohort: int | None = None,
    printed: bool = False,
) -> Terms:
    """``E F(W_T) - F* <= L/(g + T) (2B/mu^2 + g |W_0 - W*|^2/2) + (2L/mu)(Gamma - Omega)``.

    B = max_t sum_i rho_i^2 sigma^2 + 8 (E-1)^2 G^2 + 6 L Omega, plus (4/K) E^2 G^2 with
    K clients drawn; g = max(8L/mu, E) - 1 and rates 2/(mu (g + t)).

    Args:
        problem: L, mu, sigma^2, G^2, the distance from the optimum.
        steps: E, local steps per round.
        iterations: T, local steps in all.
        omega: Omega of `speed_and_error`.
        gamma: Gamma of `speed_and_error`.
        largest: rho_i of the round with the largest sum of squares, (N,).
        cohort: K, where clients are drawn by their weights with replacement; None for
            all clients.
        printed: use the constants as printed: (E-1) and E for (E-1)^2 and E^2, and L/mu
            for 2L/mu. They are too small: the proof's Lemmas 3 and 5 lose a factor in
            the Cauchy-Schwarz step, and eq. 11 loses a factor 2.

    >>> quiet = Problem(1.0, 1.0, 0.0, 1.0, distance=4.0)
    >>> varying_bound(quiet, 1, 93, omega=0.0, gamma=0.0, largest=[0.5, 0.5])["start"]
    0.14

    Source: [Exp-α 2023, Thm 1, Thm 2] (appendix A.9, A.12).
    """
    L = problem.smoothness
    mu = problem.convexity
    drawn = 0.0 if cohort is None else 4 / cohort
    shift = max(8 * L / mu, steps) - 1
    late = shift + iterations
    power = factor = 1 if printed else 2
    rho: Floats = np.asarray(largest, dtype=np.float64)
    scale = 2 * L / mu**2 / late
    values = {
        "noise": scale * float(rho @ rho) * problem.noise,
        "drift": scale * 8 * (steps - 1) ** power * problem.gradient,
        "sampling": scale * drawn * steps**power * problem.gradient,
        "speed": scale * 6 * L * omega,
        "start": L * shift * problem.distance / 2 / late,
        "error": factor * L / mu * max(gamma - omega, 0.0),
    }
    assumptions = (
        problem.strongly_convex(),
        problem.bounded(),
        Assumption("the weights of a round sum to one"),
        Assumption(
            "learning rates 2/(μ (γ + t)), γ = max(8L/μ, E) − 1, at local step t"
        ),
    )
    return Terms(
        "loss gap with weights that vary over time",
        source="[Exp-α 2023, Thm 1, Thm 2]",
        values=values,
        assumptions=assumptions,
    )
