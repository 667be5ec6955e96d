"""No run beats the lower bounds of [Buttaci 2024] on the problem of their proof."""

from __future__ import annotations

import numpy as np
import pytest

from poise import theory
from theory.simulated import SEEDS, Quadratic, simulate


def second_moment(
    a: float, b: float, variance: float, rounds: int, start: float
) -> np.ndarray:
    """E w_t^2 of w <- a w + b + noise, exactly."""
    mean, spread, found = start, 0.0, [start**2]
    for _ in range(rounds):
        mean, spread = a * mean + b, a**2 * spread + variance
        found.append(mean**2 + spread)
    return np.array(found)


@pytest.mark.parametrize("share", [1.0, 0.3, 0.01])
@pytest.mark.parametrize("steps", [2, 7])
@pytest.mark.parametrize("alpha", [0.0, 0.5, 4.0])
def test_no_run_of_fedprox_is_better_than_the_lower_bound(
    alpha: float, steps: int, share: float
) -> None:
    """Theorem 4.2 on its own problem, of which every moment is known."""
    mu, drift, noise, clients, start = 0.8, 1.5, 0.7, 4, 2.0
    rate = share / (steps * (alpha + mu))
    p, curvature = np.full(clients, 1 / clients), np.array([mu, mu, mu / 2, mu / 2])
    kappa = 1 - rate * (alpha + curvature)
    powers = kappa[:, None] ** np.arange(steps)
    a = float(p @ (kappa**steps + alpha * rate * powers.sum(axis=1)))
    b = float(
        -rate * (p * np.array([drift, drift, -drift, -drift])) @ powers.sum(axis=1)
    )
    variance = float(rate**2 * noise * (p**2 @ (powers**2).sum(axis=1)))
    error = 3 * mu / 8 * second_moment(a, b, variance, 200, start)
    for t in range(201):
        bound = theory.unavoidable_error(
            mu, alpha, steps, t, rate, error[0], drift**2, noise, float(p @ p)
        )
        assert bound.holds
        assert bound.total <= error[t] * (1 + 1e-12)


@pytest.mark.parametrize("share", [1.0, 0.3, 0.01])
@pytest.mark.parametrize("steps", [2, 7])
@pytest.mark.parametrize("beta", [0.2, 0.7, 1.0])
def test_no_run_of_the_perturbed_gradient_is_better_than_the_lower_bound(
    beta: float, steps: int, share: float
) -> None:
    """Theorem 4.5 on its own problem, where the neighbours' mean is the model itself."""
    mu, drift, noise, clients, start = 0.8, 1.5, 0.7, 4, 2.0
    rate = share / (steps * mu)
    p, curvature = np.full(clients, 1 / clients), np.array([mu, mu, mu / 2, mu / 2])
    kappa = 1 - rate * beta * curvature
    powers = kappa[:, None] ** np.arange(steps)
    a = float(p @ (kappa**steps - rate * (1 - beta) * curvature * powers.sum(axis=1)))
    b = float(
        -rate * (p * np.array([drift, drift, -drift, -drift])) @ powers.sum(axis=1)
    )
    variance = float(rate**2 * noise * (p**2 @ (powers**2).sum(axis=1)))
    error = 3 * mu / 8 * second_moment(a, b, variance, 200, start)
    for t in range(201):
        bound = theory.unavoidable_perturbed_error(
            mu, beta, steps, t, rate, error[0], drift**2, noise, float(p @ p)
        )
        assert bound.holds
        assert bound.total <= error[t] * (1 + 1e-12)


def test_the_exact_moments_are_those_of_simulated_runs() -> None:
    """The recursion above against local steps with Gaussian noise, at 5 standard errors."""
    mu, drift, noise, steps, alpha = 0.8, 1.5, 0.7, 3, 0.5
    rate = 1 / (steps * (alpha + mu))
    task = Quadratic(
        np.array([[-drift / mu]] * 2 + [[2 * drift / mu]] * 2),
        np.array([mu, mu, mu / 2, mu / 2]),
        np.full(4, 0.25),
        noise,
    )
    squares = np.concatenate(
        [
            np.square(
                simulate(task, 5, steps, lambda t, k: rate, alpha=alpha, seed=s).models[
                    -1, :, 0
                ]
            )
            for s in range(200)
        ]
    )
    kappa = 1 - rate * (alpha + task.curvature)
    powers = kappa[:, None] ** np.arange(steps)
    a = float(np.mean(kappa**steps + alpha * rate * powers.sum(axis=1)))
    b = float(-rate * np.array([drift, drift, -drift, -drift]) @ powers.sum(axis=1) / 4)
    variance = float(rate**2 * noise / 16 * (powers**2).sum())
    exact = second_moment(a, b, variance, 5, 0.0)[-1]
    assert len(squares) == 200 * SEEDS
    assert abs(squares.mean() - exact) <= 5 * squares.std() / np.sqrt(len(squares))
