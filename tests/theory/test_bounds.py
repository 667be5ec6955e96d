"""No bound is violated in 20 seeds on problems with known constants."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poise import theory
from poise.core.history import History
from poise.core.types import Setting
from poise.samplers import MD, Binomial, Uniform
from theory.simulated import (
    SEEDS,
    Logistic,
    Quadratic,
    Trace,
    Waves,
    below,
    exp_alpha,
    simulate,
    soft,
)

P = np.array([0.1, 0.2, 0.3, 0.4])
OPTIMA = np.array([[2.0, 0.0], [0.0, 1.5], [-1.0, -0.5], [0.5, -1.0]])
CURVATURE = np.array([1.0, 0.5, 0.8, 0.4])
NEAR = np.array([[0, 2, 1, 1], [2, 0, 3, 1], [1, 3, 0, 2], [1, 1, 2, 0]]) / 20
LATE = (1, 5, 20, 60)  # rounds after which a bound is compared with what was measured
L, MU = 1.0, 0.4


def quadratic(noise: float) -> Quadratic:
    return Quadratic(OPTIMA, CURVATURE, P, noise)


TASKS = pytest.mark.parametrize(
    "task",
    [quadratic(0.0), quadratic(0.5), Logistic.drawn(0.0), Logistic.drawn(0.5)],
    ids=["quadratic", "quadratic, noise", "logistic", "logistic, noise"],
)


# [Mansour 2022], [Mansour 2023] -------------------------------------------------------------------


def skews(task: Any, trace: Trace) -> tuple[float, float]:
    """The least skew at the models of the run and the largest at the optimum."""

    def skew(a: np.ndarray, f: np.ndarray) -> np.ndarray:
        return np.asarray((a * f).sum(axis=-1) / (f @ P))

    at_best = np.broadcast_to(task.losses(task.best) - task.floors, trace.weights.shape)
    on_the_way = task.losses(trace.models[:-1]) - task.floors
    return float(skew(trace.weights, on_the_way).min()), float(
        skew(trace.weights, at_best).max()
    )


@TASKS
@pytest.mark.parametrize("temperature", [0.5, 2.0, -2.0, 1e9])
def test_weighting_skew_bounds_the_loss(temperature: float, task: Any) -> None:
    """[Mansour 2022, Cor. 1] with rates 1/(mu (t + 4L/mu)); eq. 17 is looser."""
    steps, mu, shift = 3, task.convexity, 4 * task.smoothness / task.convexity
    trace = simulate(
        task,
        max(LATE),
        steps,
        lambda t, k: 1 / (mu * (t * steps + k + shift)),
        weigh=soft(temperature, P),
    )
    lowest, highest = skews(task, trace)
    pi, largest = theory.weight_range(trace.weights.reshape(-1, 4), P)
    problem = task.problem(trace.largest_gradient)
    assert pi <= lowest <= highest <= largest <= theory.largest_range(pi, P) + 1e-12
    for t in LATE:
        bound = theory.skew_bound(problem, steps, t * steps, lowest, highest)
        assert below(task.gap(trace.models[t]), bound.total)
        assert (
            bound.total <= theory.bounded_weights(problem, steps, t * steps, pi).total
        )
        assert bound.holds is not False


def test_the_skew_of_proportional_weights_is_one_and_costs_no_error() -> None:
    task = quadratic(0.0)
    assert theory.weighting_skew(P, P, task.losses(np.ones(2))) == pytest.approx(
        1.0, rel=1e-14
    )
    bound = theory.skew_bound(task.problem(4.0), 2, 100, 1.0, 1.0)
    assert bound["error"] == 0.0
    by_hand = 4 * L * 32 * 4 * 4.0 / (3 * MU**2) / (100 + 10)
    assert bound["drift"] == pytest.approx(by_hand, rel=1e-14)


@given(st.lists(st.floats(0, 5), min_size=2, max_size=6), st.floats(0.05, 0.95))
def test_no_weight_falls_below_pi_from_the_least_temperature_on(
    losses: list[float], pi: float
) -> None:
    f = np.array(losses)
    if np.ptp(f) < 1e-9:
        return
    p = np.arange(1, len(f) + 1) / sum(range(1, len(f) + 1))
    temperature = theory.least_temperature(float(np.ptp(f)), pi)
    weights = soft(temperature, p)(f[None], f[None])[0]
    assert theory.weight_range(weights, p)[0] >= pi * (1 - 1e-9)


# [Exp-α 2023] -------------------------------------------------------------------------------------


@TASKS
@pytest.mark.parametrize("alpha", [0.1, 0.5, 1e9])
def test_varying_weights_bound_the_loss(alpha: float, task: Any) -> None:
    """[Exp-α 2023, Thm 1] with rates 2/(mu (g + t)), g = max(8L/mu, E) - 1."""
    steps, mu = 4, task.convexity
    shift = max(8 * task.smoothness / mu, steps) - 1
    trace = simulate(
        task,
        max(LATE),
        steps,
        lambda t, k: 2 / (mu * (shift + t * steps + k)),
        weigh=exp_alpha(alpha, P),
    )
    problem = task.problem(trace.largest_gradient)
    flat, losses = (
        trace.weights.reshape(-1, 4),
        task.losses(trace.models[:-1]).reshape(-1, 4),
    )
    omega, gamma = theory.speed_and_error(
        flat, losses, task.losses(task.best), task.floors
    )
    squares = np.square(flat).sum(axis=1)
    for t in LATE:
        bound = theory.varying_bound(
            problem, steps, t * steps, omega, gamma, flat[squares.argmax()]
        )
        assert below(task.gap(trace.models[t]), bound.total)
        printed = theory.varying_bound(
            problem,
            steps,
            t * steps,
            omega,
            gamma,
            flat[squares.argmax()],
            printed=True,
        )
        assert printed.total <= bound.total


def test_exp_alpha_trades_error_for_speed() -> None:
    """Corollary 1.1: weights that fall with the gap have a smaller Omega than proportional ones."""
    task = quadratic(0.0)
    losses = task.losses(np.array([[1.0, -1.0], [0.2, 0.3], [3.0, 0.0]]))
    falling = P * np.exp(-losses)
    falling /= falling.sum(axis=1, keepdims=True)
    slow, _ = theory.speed_and_error(
        np.tile(P, (3, 1)), losses, task.losses(task.best), np.zeros(4)
    )
    fast, _ = theory.speed_and_error(
        falling, losses, task.losses(task.best), np.zeros(4)
    )
    assert fast <= slow


@pytest.mark.parametrize("t", [0, 7, 1000])
def test_the_error_term_of_b_is_twice_the_printed_one(t: int) -> None:
    """[Exp-α 2023, eq. 11] with its own eq. 7: L/(g + t) (2/mu^2) (2/eta_t)(Gamma - Omega), eta_t =
    2/(mu (g + t))."""
    shift = 8 * L / MU - 1
    rate = 2 / (MU * (shift + t))
    excess = 0.3
    by_proof = L / (shift + t) * 2 / MU**2 * 2 / rate * excess
    problem = theory.Problem(L, MU, 0.0, 0.0, distance=0.0)
    assert theory.varying_bound(problem, 1, t, 0.0, excess, P)[
        "error"
    ] == pytest.approx(by_proof, rel=1e-12)


# [Buttaci 2024] -----------------------------------------------------------------------------------


@TASKS
@pytest.mark.parametrize("alpha", [0.0, 0.3, 2.0])
@pytest.mark.parametrize("rate", ["fixed", "falling"])
def test_fedprox_bounds_the_loss(rate: Any, alpha: float, task: Any) -> None:
    steps, mu = 3, task.convexity
    pulled = alpha + task.smoothness
    rates = {
        "fixed": lambda t, k: 1 / (2 * pulled * steps),
        "falling": lambda t, k: 4 / (mu * steps * (8 * pulled / mu + t)),
    }
    trace = simulate(task, max(LATE), steps, rates[rate], alpha=alpha)
    problem = task.problem(trace.largest_gradient)
    for t in LATE:
        assert below(
            task.gap(trace.models[t]),
            theory.fedprox_bound(problem, alpha, steps, t, rate).total,
        )


@TASKS
@pytest.mark.parametrize("beta", [0.4, 0.7, 1.0])
@pytest.mark.parametrize("rate", ["fixed", "falling"])
def test_the_perturbed_gradient_bounds_the_loss(
    rate: Any, beta: float, task: Any
) -> None:
    task = replace(task, importance=NEAR.sum(axis=1))
    steps, mu, smooth = 3, task.convexity, task.smoothness
    rates = {
        "fixed": lambda t, k: 1 / (2 * smooth * steps),
        "falling": lambda t, k: 4 / (mu * steps * (8 * smooth / mu + t)),
    }
    trace = simulate(task, max(LATE), steps, rates[rate], beta=beta, near=NEAR)
    problem = task.problem(trace.largest_gradient)
    for t in LATE:
        assert below(
            task.gap(trace.models[t]),
            theory.perturbed_bound(problem, beta, steps, t, rate).total,
        )


@TASKS
@pytest.mark.parametrize(
    "sampler", [MD(2), Uniform(2), Binomial(2)], ids=lambda s: s.name
)
def test_sampled_clients_bound_the_gradient(sampler: Any, task: Any) -> None:
    """[Fraboni 2023, Thm 2.1] with noise: b2 = 2, and k2 the least that goes with it at the models
    of the run."""
    steps, rounds, b2, statistics = 2, 40, 2.0, sampler.statistics(P)
    smooth = task.smoothness
    limits = (0.9 / np.sqrt(2 * (2 * b2 + 1)), 0.99, 0.99 / (3 * statistics.gamma * b2))
    rate = min(limits) / (smooth * steps)
    setting, draws = Setting(4, np.ones(4, dtype=np.int64), P), iter(range(10**6))

    def drawn(before: np.ndarray, after: np.ndarray) -> np.ndarray:
        weights = np.zeros((SEEDS, 4))
        for row in weights:
            cohort = sampler.draw(
                setting, np.random.default_rng(next(draws)), 0, History()
            )
            row[cohort.clients] = cohort.weights
        return weights

    trace = simulate(task, rounds, steps, lambda t, k: rate, weigh=drawn)
    each = task.gradients(
        np.repeat(trace.models[:-1].reshape(-1, 1, trace.models.shape[-1]), 4, axis=1)
    )
    mean = np.square(np.einsum("n,snd->sd", P, each)).sum(axis=-1)
    k2 = float((np.square(each).sum(axis=-1).max(axis=1) - b2 * mean).max())
    found = mean.reshape(rounds, SEEDS).mean(axis=0)
    problem = task.problem(trace.largest_gradient)
    bound = theory.sampling_bound(
        problem, statistics, steps, rounds, rate, dissimilarity=(b2, max(k2, 0.0))
    )
    assert [a.text for a in bound.assumptions if a.holds is False] == []
    assert below(found, bound.total)


def random_models(trace: Trace, rate: Any) -> np.ndarray:
    """E |grad f|^2 at a local model that is drawn evenly, or in proportion to falling rates; one
    value per seed."""
    rounds = len(trace.squared)
    chances = np.ones(rounds) if rate == "fixed" else 1 / np.arange(1, rounds + 1)
    each: np.ndarray = trace.squared.mean(axis=1)
    return np.asarray((chances / chances.sum()) @ each)


@pytest.mark.parametrize("rate", ["fixed", "falling"])
@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_fedprox_bounds_gradients_without_convexity(alpha: float, rate: Any) -> None:
    task, steps, rounds = Waves(OPTIMA, P, 0.3), 3, 40
    rates = {
        "fixed": lambda t, k: 1 / (2 * (alpha + 1) * np.sqrt(rounds * steps)),
        "falling": lambda t, k: 1 / (2 * (alpha + 1) * np.sqrt(steps) * (t + 1)),
    }
    trace = simulate(task, rounds, steps, rates[rate], alpha=alpha)
    problem = task.problem(trace.largest_gradient)
    assert below(
        random_models(trace, rate),
        theory.fedprox_stationary(problem, alpha, steps, rounds, rate).total,
    )


@pytest.mark.parametrize("rate", ["fixed", "falling"])
@pytest.mark.parametrize("beta", [0.5, 0.9])
def test_the_perturbed_gradient_bounds_gradients_without_convexity(
    beta: float, rate: Any
) -> None:
    task, steps, rounds = Waves(OPTIMA, NEAR.sum(axis=1), 0.3), 3, 40
    rates = {
        "fixed": lambda t, k: 1 / (2 * np.sqrt(rounds * steps)),
        "falling": lambda t, k: 1 / (2 * np.sqrt(steps) * (t + 1)),
    }
    trace = simulate(task, rounds, steps, rates[rate], beta=beta, near=NEAR)
    problem = task.problem(trace.largest_gradient)
    assert below(
        random_models(trace, rate),
        theory.perturbed_stationary(problem, beta, steps, rounds, rate).total,
    )


@given(st.floats(0.01, 10), st.floats(0, 1), st.floats(0, 10), st.floats(0.01, 1))
def test_contractions_are_ordered(
    smooth: float, share: float, alpha: float, beta: float
) -> None:
    """[Buttaci 2024, §4.4]: perturbed <= FedAvg <= FedProx, with equality at beta = 1 and alpha =
    0."""
    problem = theory.Problem(smooth, share * smooth)
    fedavg = theory.fedprox_contraction(problem)
    assert theory.perturbed_contraction(problem, beta) <= fedavg + 1e-15
    assert fedavg <= theory.fedprox_contraction(problem, alpha) + 1e-15
    assert theory.perturbed_contraction(problem, 1.0) == pytest.approx(
        fedavg, rel=1e-14
    )


@pytest.mark.parametrize("alpha", [0.0, 0.5, 3.0])
def test_a_round_contracts_at_least_as_promised(alpha: float) -> None:
    """Without noise and heterogeneity, |w - w*|^2 falls by the contraction of Theorem 4.1 in every
    round."""
    task, steps = Quadratic(np.tile([1.0, 2.0], (4, 1)), CURVATURE, P), 4
    trace = simulate(
        task, 30, steps, lambda t, k: 1 / (2 * (alpha + L) * steps), alpha=alpha
    )
    apart = np.square(trace.models[:, 0] - task.best).sum(axis=1)
    assert (apart[1:] / apart[:-1]).max() <= theory.fedprox_contraction(
        task.problem(1.0), alpha
    )


@pytest.mark.parametrize("beta", [1.0, 0.6])
def test_the_best_number_of_steps_is_where_the_bound_is_least(beta: float) -> None:
    """Against a search over real E: of the falling rate's error [Buttaci 2024, §4.4] and of Theorem
    4.6 (Corollary 4.1)."""
    grid = np.linspace(0.01, 60, 60_000)
    problem = theory.Problem(2.0, 0.5, 30.0, 0.2, 0.7, gap=3.0, importance=P)
    bound = theory.fedprox_bound if beta == 1 else theory.perturbed_bound
    given_beta = 0.3 if beta == 1 else beta  # the pull of FedProx does not matter
    error = [
        sum(
            bound(problem, given_beta, e, 10, "falling")[k]
            for k in ("noise", "heterogeneity", "drift")
        )
        for e in grid[::100]
    ]
    assert theory.best_steps(problem, beta) == pytest.approx(
        grid[::100][int(np.argmin(error))], abs=0.1
    )
    squares = [
        theory.perturbed_stationary(problem, beta, e, 50).total for e in grid[::100]
    ]  # type: ignore[arg-type]
    found = theory.best_steps_nonconvex(problem, 50, beta)
    assert found == pytest.approx(grid[::100][int(np.argmin(squares))], abs=0.1)
    least = (
        3
        / 2 ** (2 / 3)
        * (4 * 2 * 3 + problem.squares * 15) ** (2 / 3)
        * 50 ** (-2 / 3)
    )
    drift = 0.2 * (4 + (1 - beta) ** 2 + 8 * (1 - 1 / beta) ** 2)
    assert theory.perturbed_stationary(problem, beta, found, 50).total == pytest.approx(
        least * drift ** (1 / 3)
    )  # type: ignore[arg-type]
