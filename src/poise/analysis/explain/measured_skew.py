"""The weights of a run against the importance: skews, ranges, speed and error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from poise import theory
from poise.core.errors import InvalidOption
from poise.core.types import Floats
from poise.theory import Terms

WHOLE = 1e-6
"""Tolerance of the sum of a round's weights around 1."""


@dataclass(frozen=True)
class MeasuredSkew:
    """What [Mansour 2022] and [Exp-α 2023] say of weights, measured on a run.

    Args:
        rounds: the versions of the model that were evaluated, (k,).
        skews: rho(t, w_t) at these models, (k,).
        at_optimum: rho(t, w*) with the weights of every round, (R,).
        kappa: pi and Pi, the least and largest alpha_i/p_i of all rounds.
        omega: Omega, over the evaluated models.
        gamma: Gamma, over all rounds.
        largest: the weights of the round with the largest sum of squares, (N,).
    """

    rounds: Floats
    skews: Floats
    at_optimum: Floats
    kappa: tuple[float, float]
    omega: float
    gamma: float
    largest: Floats

    @property
    def lowest(self) -> float:
        """rho_, the least skew at the evaluated models."""
        return float(self.skews.min())

    @property
    def highest(self) -> float:
        """rho~, the largest skew at the optimum."""
        return float(self.at_optimum.max())

    def bounds(
        self, problem: theory.Problem, steps: int, rounds: int, rate: float
    ) -> list[Terms]:
        """The bounds at the run's own rate, with the range and with the skews measured.

        The range bounds the skew everywhere; the skews themselves are measured at the
        evaluated models only, and so is Omega.
        """
        pi, top = self.kappa
        found = []
        for name, low, high in (
            ("measured range", pi, top),
            ("measured skew", self.lowest, self.highest),
        ):
            one = theory.skew_step(problem, steps, rate, low, high)
            title = f"loss gap with skewed weights, {name}"
            found.append(one.repeated(steps * rounds).loss_gap(problem, title))
        for name, omega, gamma in (
            ("measured range", pi * problem.heterogeneity, self.gamma),
            ("measured Ω and Γ", self.omega, self.gamma),
        ):
            other = theory.varying_step(
                problem, steps, rate, omega, gamma, self.largest
            )
            title = f"loss gap with weights that vary over time, {name}"
            found.append(other.repeated(steps * rounds).loss_gap(problem, title))
        return found


def measured_skew(
    importance: Floats,
    weights: Floats,
    versions: Floats,
    losses: Floats,
    at_optimum: Floats,
    floors: Floats,
) -> MeasuredSkew | None:
    """Measure the weights of a run; None unless those of every round sum to one.

    Args:
        importance: p, (N,).
        weights: the coefficients of every aggregation, (R, N).
        versions: the versions of the model at which losses were evaluated, (k,), each
            below R.
        losses: F_i at these models, (k, N).
        at_optimum: F_i(w*), (N,).
        floors: F_i*, (N,).

    >>> skew = measured_skew(
    ...     np.array([0.5, 0.5]),
    ...     weights=np.array([[0.25, 0.75], [0.5, 0.5]]),
    ...     versions=np.array([0, 1]),
    ...     losses=np.array([[1.0, 3.0], [1.0, 1.0]]),
    ...     at_optimum=np.array([2.0, 2.0]),
    ...     floors=np.zeros(2),
    ... )
    >>> skew.skews.tolist(), skew.highest, skew.kappa, skew.omega, skew.gamma
    ([1.25, 1.0], 1.0, (0.5, 1.5), 1.0, 2.0)

    Source: [Mansour 2022, eq. 6, 7, §2.5.2], [Exp-α 2023, Thm 1].
    """
    if not len(versions) or np.abs(weights.sum(axis=1) - 1).max() > WHOLE:
        return None
    used = np.asarray(versions, dtype=np.int64)
    try:
        skews = [
            theory.weighting_skew(weights[n], importance, row, floors)
            for n, row in zip(used, losses, strict=True)
        ]
        best = [
            theory.weighting_skew(row, importance, at_optimum, floors)
            for row in weights
        ]
    except InvalidOption:  # all clients share their optimum
        return None
    omega, _ = theory.speed_and_error(weights[used], losses, at_optimum, floors)
    _, gamma = theory.speed_and_error(
        weights, np.tile(at_optimum, (len(weights), 1)), at_optimum, floors
    )
    squares = np.square(weights).sum(axis=1)
    return MeasuredSkew(
        rounds=np.asarray(versions, dtype=np.float64),
        skews=np.array(skews),
        at_optimum=np.array(best),
        kappa=theory.weight_range(weights, importance),
        omega=omega,
        gamma=gamma,
        largest=np.asarray(weights[int(squares.argmax())]),
    )
