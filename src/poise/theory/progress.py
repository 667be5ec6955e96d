"""One step or one round: what it leaves of the squared distance from the optimum.

The one-step statements hold for every learning rate that their assumptions allow, so
they also bound runs at other rates than those of the theorems that follow from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf

import numpy as np
from numpy.typing import ArrayLike

from poise.core.errors import require
from poise.theory.terms import Assumption, Problem, Terms, all_hold


@dataclass(frozen=True)
class Progress:
    """``E |w' - w*|^2 <= contraction |w - w*|^2 + sum of added``, after a step or round.

    Args:
        name: the step and the method.
        source: the theorem.
        contraction: the share of the squared distance that is left, at least 0.
        added: what is added, by name.
        assumptions: the conditions of the theorem.

    >>> half = Progress("an example", "nowhere", 0.5, {"noise": 1.0})
    >>> half.after(4.0), half.repeated(2).after(4.0), half.limit
    (3.0, 2.5, 2.0)
    """

    name: str
    source: str
    contraction: float
    added: Mapping[str, float]
    assumptions: tuple[Assumption, ...] = ()

    def after(self, distance: float) -> float:
        """Return the bound of the squared distance after the step."""
        return self.contraction * distance + float(sum(self.added.values()))

    @property
    def limit(self) -> float:
        """The bound after infinitely many steps; inf without a contraction."""
        if self.contraction >= 1:
            return inf
        return float(sum(self.added.values())) / (1 - self.contraction)

    @property
    def holds(self) -> bool | None:
        """False if an assumption is broken, None if one is undecided, else True."""
        return all_hold(self.assumptions)

    def repeated(self, times: int) -> Progress:
        """Return the progress of that many equal steps: a geometric series."""
        left = self.contraction**times
        series = float(times)
        if self.contraction != 1:
            series = (1 - left) / (1 - self.contraction)
        added = {name: value * series for name, value in self.added.items()}
        return replace(self, contraction=left, added=added)

    def loss_gap(self, problem: Problem, name: str) -> Terms:
        """``E F(w) - F* <= L/2 E |w - w*|^2`` after the step, from the start w^0."""
        half = problem.smoothness / 2
        values = {"start": half * self.contraction * problem.distance}
        for term, value in self.added.items():
            values[term] = half * value
        return Terms(name, self.source, values, assumptions=self.assumptions)


def skew_step(
    problem: Problem, steps: int, rate: float, lowest: float, highest: float
) -> Progress:
    """One local step with skewed weights.

    ``contraction = 1 - rate mu (1 + 3/8 rho_)``; added: 32 rate^2 E^2 G^2, rate^2
    sigma^2, 6 rate^2 rho_ L Gamma and 2 rate Gamma (rho~ - rho_).

    Args:
        problem: L, mu, sigma^2, G^2, Gamma.
        steps: E, local steps per round.
        rate: the learning rate; it falls by at most a half within a round.
        lowest: rho_, the least skew at the models of the run.
        highest: rho~, the largest skew at the optimum.

    >>> problem = Problem(2.0, 0.5, noise=1.0, gradient=3.0, heterogeneity=0.2)
    >>> step = skew_step(problem, 2, 0.1, lowest=0.8, highest=1.5)
    >>> round(step.contraction, 6), round(step.after(4.0), 6)
    (0.935, 7.6372)

    Source: [Mansour 2022, Thm 1], [Mansour 2023, Thm 3]. The proof needs the skew at
    the weighted means of the local models after every local step, not only at the
    start of the rounds as eq. 7 defines rho_.
    """
    L = problem.smoothness
    mu = problem.convexity
    spread = problem.heterogeneity
    excess = 0.0
    if spread:
        excess = 2 * rate * spread * (highest - lowest)
    added = {
        "drift": 32 * rate**2 * steps**2 * problem.gradient,
        "noise": rate**2 * problem.noise,
        "heterogeneity": 6 * rate**2 * lowest * L * spread,
        "error": excess,
    }
    return Progress(
        "a local step with skewed weights",
        source="[Mansour 2022, Thm 1], [Mansour 2023, Thm 3]",
        contraction=max(1 - rate * mu * (1 + 0.375 * lowest), 0.0),
        added=added,
        assumptions=_weighted(problem, rate),
    )


def varying_step(
    problem: Problem,
    steps: int,
    rate: float,
    omega: float,
    gamma: float,
    largest: ArrayLike,
) -> Progress:
    """One local step with weights that vary over time.

    ``contraction = 1 - rate mu``; added: rate^2 max_t sum_i rho_i^2 sigma^2, 8 rate^2
    (E-1)^2 G^2, 6 rate^2 L Omega and 2 rate (Gamma - Omega).

    Args:
        problem: L, mu, sigma^2, G^2.
        steps: E, local steps per round.
        rate: the learning rate; it falls by at most a half within a round.
        omega: Omega of `speed_and_error`, or any smaller value from 0 on.
        gamma: Gamma of `speed_and_error`, or any larger value.
        largest: rho_i of the round with the largest sum of squares, (N,).

    >>> problem = Problem(2.0, 0.5, noise=1.0, gradient=3.0)
    >>> step = varying_step(problem, 3, 0.1, omega=0.5, gamma=0.75, largest=[0.6, 0.8])
    >>> {name: round(value, 6) for name, value in step.added.items()}
    {'noise': 0.01, 'drift': 0.96, 'speed': 0.06, 'error': 0.05}

    Source: [Exp-α 2023, eq. 7, Lemmas 1 to 3], with (E-1)^2 for (E-1): Lemma 3 loses a
    factor in the Cauchy-Schwarz step.
    """
    L = problem.smoothness
    rho = np.asarray(largest, dtype=np.float64)
    added = {
        "noise": rate**2 * float(rho @ rho) * problem.noise,
        "drift": 8 * rate**2 * (steps - 1) ** 2 * problem.gradient,
        "speed": 6 * rate**2 * L * omega,
        "error": 2 * rate * (gamma - omega),
    }
    return Progress(
        "a local step with weights that vary over time",
        source="[Exp-α 2023, eq. 7, Lemmas 1–3]",
        contraction=max(1 - rate * problem.convexity, 0.0),
        added=added,
        assumptions=_weighted(problem, rate),
    )


def _weighted(problem: Problem, rate: float) -> tuple[Assumption, ...]:
    most = 1 / (4 * problem.smoothness)
    return (
        problem.strongly_convex(),
        problem.bounded(),
        Assumption("all clients take part, and the weights of a round sum to one"),
        Assumption(
            f"learning rate at most 1/(4L) = {most:.3g}",
            bool(rate <= most * (1 + 1e-12)),
        ),
    )


def fedprox_round(problem: Problem, alpha: float, steps: int, rate: float) -> Progress:
    """One round of FedProx (alpha = 0: FedAvg) on strongly convex losses.

    ``contraction = (alpha + mu (1 - rate (alpha + mu))^E)/(alpha + mu)``; added: rate^2
    E S sigma^2, 6 rate^2 L E Gamma and 8 rate^2 E^3 G^2. S = sum p_i^2.

    Args:
        problem: L, mu, sigma^2, G^2, Gamma, importance.
        alpha: strength of the pull.
        steps: E, local steps per round.
        rate: the learning rate of this round.

    >>> problem = Problem(1.0, 0.5, 0.0, 0.0, 0.0, importance=np.array([1.0]))
    >>> fedprox_round(problem, 0.5, 2, 0.5).contraction
    0.625

    Source: [Buttaci 2024, Lemma B.1], from which Theorem 4.1 follows.
    """
    mu = problem.convexity
    pulled = alpha + mu
    noise = problem.squares * problem.noise
    added = {
        "noise": rate**2 * steps * noise,
        "heterogeneity": 6
        * rate**2
        * problem.smoothness
        * steps
        * problem.heterogeneity,
        "drift": 8 * rate**2 * steps**3 * problem.gradient,
    }
    left = (alpha + mu * (1 - rate * pulled) ** steps) / pulled
    most = min(1 / (2 * problem.smoothness), 1 / pulled)
    limit = Assumption(
        f"learning rate at most min(1/(2L), 1/(α + μ)) = {most:.3g}",
        bool(rate <= most * (1 + 1e-12)),
    )
    return Progress(
        "a round of FedProx",
        source="[Buttaci 2024, Lemma B.1]",
        contraction=left,
        added=added,
        assumptions=(
            problem.strongly_convex(),
            problem.bounded(),
            Assumption("all clients take part, with weights p"),
            limit,
        ),
    )


def perturbed_round(
    problem: Problem,
    beta: float,
    steps: int,
    rate: float,
    previous: float | None = None,
) -> Progress:
    """One round of the perturbed gradient on strongly convex losses.

    ``contraction = 1 - 1/beta + (1 - beta mu rate)^E/beta``, or 0 where that is below
    0; added: rate^2 E S sigma^2, 6 rate^2 L E Gamma, 8 rate^2 E^3 G^2 (4 + (1 - beta)^2
    + 8 (previous/rate)^2 (1 - 1/beta)^2) and mu rate^3 beta (1 - beta) E^3 G^2.

    Args:
        problem: L, mu, sigma^2, G^2, Gamma, importance.
        beta: the share of the client's own model, in (0, 1].
        steps: E, local steps per round.
        rate: the learning rate of this round.
        previous: that of the round before, by default the same; 0 in the first round.

    >>> problem = Problem(1.0, 0.5, 0.0, 0.0, 0.0, importance=np.array([1.0]))
    >>> perturbed_round(problem, 0.5, 2, 0.5).contraction
    0.53125

    Source: [Buttaci 2024, Lemma C.1], from which Theorem 4.4 follows.
    """
    require(0 < beta <= 1, f"beta must be in (0, 1], not {beta}")
    mu = problem.convexity
    before = rate if previous is None else previous
    turned = 8 * (before / rate) ** 2 * (1 - 1 / beta) ** 2
    plain = fedprox_round(problem, 0.0, steps, rate)
    added = {
        "noise": plain.added["noise"],
        "heterogeneity": plain.added["heterogeneity"],
        "drift": plain.added["drift"] * (4 + (1 - beta) ** 2 + turned),
        "perturbation": mu * rate**3 * beta * (1 - beta) * steps**3 * problem.gradient,
    }
    most = min(1 / (2 * problem.smoothness), 1 / (beta * mu))
    limit = Assumption(
        f"learning rate at most min(1/(2L), 1/(β μ)) = {most:.3g}",
        bool(rate <= most * (1 + 1e-12)),
    )
    return Progress(
        "a round of the perturbed gradient",
        source="[Buttaci 2024, Lemma C.1]",
        contraction=max(1 - 1 / beta + (1 - beta * mu * rate) ** steps / beta, 0.0),
        added=added,
        assumptions=(
            problem.strongly_convex(),
            problem.bounded(),
            Assumption("all clients take part, with the weights of the graph"),
            limit,
        ),
    )
