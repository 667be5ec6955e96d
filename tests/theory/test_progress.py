"""One step, one round, the drift in it, and the rounds to an accuracy."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poise import theory
from poise.core.errors import PoiseError
from theory.simulated import (
    SEEDS,
    SIGMAS,
    Logistic,
    Quadratic,
    exp_alpha,
    simulate,
    soft,
)

P = np.array([0.1, 0.2, 0.3, 0.4])
OPTIMA = np.array([[2.0, 0.0], [0.0, 1.5], [-1.0, -0.5], [0.5, -1.0]])
CURVATURE = np.array([1.0, 0.5, 0.8, 0.4])
NEAR = np.array([[0, 2, 1, 1], [2, 0, 3, 1], [1, 3, 0, 2], [1, 1, 2, 0]]) / 20
TASKS = pytest.mark.parametrize(
    "task",
    [Quadratic(OPTIMA, CURVATURE, P, 0.5), Logistic.drawn(0.5)],
    ids=["quadratic", "logistic"],
)
PROBLEM = theory.Problem(2.0, 0.5, 1.0, 3.0, 0.2, 4.0, 3.5, P)
RATES = st.floats(0.01, 1.0)


def stays_below(before: np.ndarray, after: np.ndarray, step: theory.Progress) -> bool:
    """Whether E |w' - w*|^2 <= contraction E |w - w*|^2 + added, at `SIGMAS` standard errors."""
    left = after - step.contraction * before
    error = left.std(ddof=1) / np.sqrt(SEEDS)
    return bool(left.mean() + SIGMAS * error <= sum(step.added.values()))


# The contraction ----------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("alpha", [0.0, 0.5, 3.0])
def test_clients_with_one_quadratic_contract_by_exactly_kappa(
    alpha: float, steps: int
) -> None:
    """Then w_E - w* = kappa (w - w*), so that the squared distance falls by kappa^2."""
    task = Quadratic(np.tile([1.0, 2.0], (4, 1)), np.full(4, 0.7), P)
    rate = 0.4 / (alpha + 0.7)
    trace = simulate(task, 3, steps, lambda t, k: rate, alpha=alpha)
    apart = np.square(trace.models[:, 0] - task.best).sum(axis=1)
    step = theory.fedprox_round(task.problem(0.0), alpha, steps, rate)
    assert apart[1:] / apart[:-1] == pytest.approx(step.contraction**2)
    assert sum(step.added.values()) == 0.0


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("beta", [0.3, 0.8, 1.0])
def test_equal_clients_with_the_perturbed_gradient_contract_by_exactly_kappa(
    beta: float, steps: int
) -> None:
    task = Quadratic(np.tile([1.0, 2.0], (4, 1)), np.full(4, 0.7), NEAR.sum(axis=1))
    trace = simulate(task, 4, steps, lambda t, k: 0.2, beta=beta, near=NEAR)
    apart = np.square(trace.models[1:, 0] - task.best).sum(axis=1)
    step = theory.perturbed_round(task.problem(0.0), beta, steps, 0.2)
    assert apart[1:] / apart[:-1] == pytest.approx(step.contraction**2)


@given(st.floats(0.01, 1), st.floats(0, 10), st.floats(0.01, 1), st.integers(1, 50))
def test_the_rounds_contract_at_least_as_the_theorems_say(
    share: float, alpha: float, beta: float, steps: int
) -> None:
    """Theorems 4.1 and 4.4 at their fixed rates; kappa <= 1 - rate mu (Lemmas B.1 and C.1)."""
    problem = theory.Problem(2.0, 2 * share, 0.0, 0.0, 0.0, importance=P)
    rate = 1 / (2 * (alpha + 2.0) * steps)
    pulled = theory.fedprox_round(problem, alpha, steps, rate)
    assert pulled.contraction <= theory.fedprox_contraction(problem, alpha) + 1e-12
    assert pulled.contraction <= 1 - rate * 2 * share + 1e-12
    rate = 1 / (2 * 2.0 * steps)
    perturbed = theory.perturbed_round(problem, beta, steps, rate)
    assert perturbed.contraction <= theory.perturbed_contraction(problem, beta) + 1e-12
    assert perturbed.contraction <= 1 - rate * 2 * share + 1e-12


# What is added ------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, 0.7])
def test_the_error_of_theorem_4_1_is_what_its_rounds_add(alpha: float) -> None:
    """L/(2 rate mu) A at the rate 1/(2 (alpha + L) E), term by term (proof of Lemma B.2)."""
    steps = 5
    rate = 1 / (2 * (alpha + PROBLEM.smoothness) * steps)
    added = theory.fedprox_round(PROBLEM, alpha, steps, rate).added
    scale = PROBLEM.smoothness / (2 * rate * PROBLEM.convexity)
    bound = theory.fedprox_bound(PROBLEM, alpha, steps, 10)
    for name, value in added.items():
        assert scale * value == pytest.approx(bound[name])


@pytest.mark.parametrize("beta", [1.0, 0.6, 0.2])
def test_the_error_of_theorem_4_4_is_what_its_rounds_add(beta: float) -> None:
    steps = 5
    rate = 1 / (2 * PROBLEM.smoothness * steps)
    added = theory.perturbed_round(PROBLEM, beta, steps, rate).added
    scale = PROBLEM.smoothness / (2 * rate * PROBLEM.convexity)
    bound = theory.perturbed_bound(PROBLEM, beta, steps, 10)
    for name, value in added.items():
        assert scale * value == pytest.approx(bound[name])


def test_the_first_round_and_a_falling_rate_of_the_perturbed_gradient() -> None:
    """By hand: E = 2, rate 0.1, G^2 = 3, beta = 0.5: 8 0.01 8 3 (4 + 0.25 + 8 x 1)."""
    drift = {
        name: theory.perturbed_round(PROBLEM, 0.5, 2, 0.1, previous).added["drift"]
        for name, previous in (("first", 0.0), ("equal", None), ("falling", 0.2))
    }
    assert drift == pytest.approx({"first": 8.16, "equal": 23.52, "falling": 69.6})


def test_steps_with_weights_by_hand() -> None:
    """L = 2, mu = 1/2, sigma^2 = 1, G^2 = 3, Gamma = 0.2; rate 0.1, E = 2."""
    step = theory.skew_step(PROBLEM, 2, 0.1, lowest=0.8, highest=1.5)
    assert step.contraction == pytest.approx(1 - 0.05 * 1.3)
    by_hand = {"drift": 3.84, "noise": 0.01, "heterogeneity": 0.0192, "error": 0.028}
    assert step.added == pytest.approx(by_hand)
    varying = theory.varying_step(PROBLEM, 2, 0.1, 0.5, 0.7, largest=[0.6, 0.8])
    assert varying.contraction == pytest.approx(0.95)
    by_hand = {"noise": 0.01, "drift": 0.24, "speed": 0.06, "error": 0.04}
    assert varying.added == pytest.approx(by_hand)


@given(RATES, RATES, RATES, st.integers(1, 8), st.integers(0, 300))
def test_steps_at_falling_rates_lead_to_the_bounds_of_the_papers(
    share: float, lowest: float, excess: float, steps: int, count: int
) -> None:
    """Step by step with the rates of [Mansour 2022, Cor. 1] and [Exp-α 2023, Thm 1]."""
    problem = theory.Problem(2.0, 2 * share, 1.0, 3.0, 0.2, 4.0, importance=P)
    mu = problem.convexity
    shifts = (4 * 2.0 / mu, max(8 * 2.0 / mu, steps) - 1)
    skewed = varying = problem.distance
    for t in range(count):
        rate = 1 / (mu * (t + shifts[0]))
        one = theory.skew_step(problem, steps, rate, lowest, lowest + excess)
        skewed = one.after(skewed)
        rate = 2 / (mu * (t + shifts[1]))
        other = theory.varying_step(problem, steps, rate, lowest, lowest + excess, P)
        varying = other.after(varying)
        assert one.assumptions[-1].holds
    corollary = theory.skew_bound(problem, steps, count, lowest, lowest + excess)
    assert skewed <= corollary.total * (1 + 1e-9)  # L/2 = 1
    theorem = theory.varying_bound(problem, steps, count, lowest, lowest + excess, P)
    assert varying <= theorem.total * (1 + 1e-9)


def test_no_skew_is_faster_than_v_min() -> None:
    """V is what `skew_bound` divides by T + g; eq. 18 as printed is another number."""
    steps, late, shift = 3, 200, 4 * 2.0 / 0.5

    def speed(skew: float) -> float:
        bound = theory.skew_bound(PROBLEM, steps, late, skew, skew)
        return bound.total * (late + shift)

    least = theory.limit_speed(PROBLEM)
    assert speed(1e12) == pytest.approx(least)
    assert speed(2.0) > speed(4.0) > least
    G2, noise = PROBLEM.gradient, PROBLEM.noise
    eighteen = 4 * 2.0 * (32 * steps**2 * G2 + noise) / (3 * 0.5**2)
    assert speed(1.0) == pytest.approx(least + eighteen)
    printed = (4 * 2.0 - 32 * steps**2 * G2 + noise) / (3 * 0.5**2)
    assert least + printed < 0, "a speed below 0"


# Simulated rounds ---------------------------------------------------------------------------------


@TASKS
@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_no_round_of_fedprox_leaves_more(alpha: float, task: Any) -> None:
    steps = 3
    rate = 1 / (2 * (task.smoothness + alpha))
    trace = simulate(task, 12, steps, lambda t, k: rate, alpha=alpha)
    apart = np.square(trace.models - task.best).sum(axis=-1)
    step = theory.fedprox_round(
        task.problem(trace.largest_gradient), alpha, steps, rate
    )
    assert step.assumptions[-1].holds
    for before, after in pairwise(apart):
        assert stays_below(before, after, step)


@pytest.mark.parametrize("weights", ["soft", "exp"])
def test_no_step_with_weights_leaves_more(weights: str) -> None:
    """E = 1, so the means of the local models are the models of the run."""
    task = Quadratic(OPTIMA, CURVATURE, P, 0.5)
    weigh = soft(0.5, P) if weights == "soft" else exp_alpha(0.1, P)
    rate = 1 / (4 * task.smoothness)
    trace = simulate(task, 25, 1, lambda t, k: rate, weigh=weigh)
    apart = np.square(trace.models - task.best).sum(axis=-1)
    flat = trace.weights.reshape(-1, 4)
    there = np.broadcast_to(task.losses(task.best), flat.shape)
    during = task.losses(trace.models[:-1]).reshape(-1, 4)
    rho = [
        theory.weighting_skew(a, P, f)
        for a, f in zip(flat, during, strict=True)
        if f @ P > 0
    ]
    rho_best = [
        theory.weighting_skew(a, P, f) for a, f in zip(flat, there, strict=True)
    ]
    problem = task.problem(trace.largest_gradient)
    omega, gamma = theory.speed_and_error(flat, during, there[0], np.zeros(4))
    squares = flat[np.square(flat).sum(axis=1).argmax()]
    for step in (
        theory.skew_step(problem, 1, rate, min(rho), max(rho_best)),
        theory.varying_step(problem, 1, rate, omega, gamma, squares),
    ):
        assert step.holds is not False
        for before, after in pairwise(apart):
            assert stays_below(before, after, step)


@given(RATES, RATES, RATES, st.integers(0, 30))
def test_repeated_progress_is_the_loop(
    left: float, added: float, start: float, times: int
) -> None:
    step = theory.Progress("a step", "nowhere", left, {"a": added, "b": 0.5})
    distance = start
    for _ in range(times):
        distance = step.after(distance)
    assert step.repeated(times).after(start) == pytest.approx(distance)
    if left < 1:
        assert step.after(step.limit) == pytest.approx(step.limit)


# Drift --------------------------------------------------------------------------------------------


def lines(slopes: list[list[float]], share: float) -> Quadratic:
    """Losses that are straight lines over the steps taken, with constant gradients."""
    far = 1e9
    count = len(slopes)
    p = np.array([share] + [(1 - share) / (count - 1)] * (count - 1))
    return Quadratic(-np.array(slopes) * far, np.full(count, 1 / far), p)


def test_the_drift_bounds_are_reached_by_straight_losses() -> None:
    """Slopes G and -G: Lemma 4.1 with equality, Lemmas 4.2 and 4.4 as the shares allow."""
    steps, rate, G2 = 6, 0.1, 4.0
    task = lines([[2.0], [-2.0]], share=1e-6)
    w = np.zeros((1, 2, 1))
    for _ in range(steps):
        w = w - rate * task.gradients(w)
    moved = np.square(w).max()
    assert moved == pytest.approx(theory.local_deviation(steps, rate, G2), rel=1e-6)
    mean = task.importance @ w[0]
    drift = np.square(w[0] - mean).max()
    assert drift == pytest.approx(theory.client_drift(steps, rate, G2), rel=1e-5)
    # each client's only neighbour is the other one
    between = np.square(w[0, 0] - w[0, 1]).sum()
    assert between == pytest.approx(theory.neighbour_drift(steps, rate, G2), rel=1e-6)
    assert theory.neighbour_drift(steps, 0.0, G2) == 0.0


@pytest.mark.parametrize("beta", [0.05, 0.4, 1.0])
def test_the_perturbed_point_stays_within_both_bounds(beta: float) -> None:
    """Random slopes of length G and neighbours, at every step of the second round."""
    rng = np.random.default_rng(3)
    steps, rates, G2 = 5, (0.2, 0.1), 4.0
    worst = 0.0
    for _ in range(300):
        slopes = rng.normal(size=(3, 2))
        slopes *= 2 / np.linalg.norm(slopes, axis=1, keepdims=True)
        near = rng.dirichlet(np.full(9, 0.2)).reshape(3, 3)
        near = (near + near.T) / 2 + 1e-12
        p = near.sum(axis=1)
        last = -rates[0] * steps * slopes
        u = near @ last / p[:, None]
        for k in range(steps + 1):
            w = p @ last - rates[1] * k * slopes
            apart = p @ w - (beta * w + (1 - beta) * u)
            worst = max(worst, float(np.square(apart).sum(axis=1).max()))
    found = theory.perturbed_drift(beta, steps, rates[1], G2, previous=rates[0])
    printed = theory.perturbed_drift(
        beta, steps, rates[1], G2, previous=rates[0], printed=True
    )
    assert found / 4 < worst <= found < printed


def test_the_drift_of_the_perturbed_gradient_does_not_explode() -> None:
    """Lemma 4.5 grows like 1/beta^2, the drift does not; by hand at beta = 1/2."""
    small = theory.perturbed_drift(1e-3, 5, 0.1, 4.0)
    assert small < 3 * theory.perturbed_drift(1.0, 5, 0.1, 4.0)
    assert theory.perturbed_drift(1e-3, 5, 0.1, 4.0, printed=True) > 1e6
    # rate^2 E^2 G^2 = 1: 4/2 + (2 + 8)/2, and 4 (4 + 1/4 + 8)
    assert theory.perturbed_drift(0.5, 5, 0.1, 4.0) == pytest.approx(7.0)
    assert theory.perturbed_drift(0.5, 5, 0.1, 4.0, printed=True) == pytest.approx(49.0)
    first = theory.perturbed_drift(0.5, 5, 0.1, 4.0, previous=0.0, printed=True)
    assert first == pytest.approx(17.0)


# Rounds to an accuracy ----------------------------------------------------------------------------

BOUNDS = {
    "fedprox": (theory.fedprox_stationary, theory.fedprox_rounds, 0.7, 25),
    "fedavg": (theory.fedprox_stationary, theory.fedprox_rounds, 0.0, 9),
    "perturbed": (theory.perturbed_stationary, theory.perturbed_rounds, 0.6, 9),
}


@pytest.mark.parametrize("name", sorted(BOUNDS))
@pytest.mark.parametrize("accuracy", [3.0, 0.1, 1e-3])
def test_rounds_to_an_accuracy(name: str, accuracy: float) -> None:
    """The least T by its definition, between the largest term and (terms)^2 times it."""
    bound, terms, option, most = BOUNDS[name]
    found = theory.least_rounds(lambda t: bound(PROBLEM, option, 4, t), accuracy)
    assert bound(PROBLEM, option, 4, found).total <= accuracy
    assert found == 1 or bound(PROBLEM, option, 4, found - 1).total > accuracy
    largest = max(terms(PROBLEM, option, 4, accuracy).values.values())
    assert largest <= found <= np.ceil(most * largest)


@pytest.mark.parametrize("name", sorted(BOUNDS))
def test_each_term_is_where_one_part_of_the_bound_is_the_accuracy(name: str) -> None:
    bound, terms, option, _ = BOUNDS[name]
    found = terms(PROBLEM, option, 4, 1e-3)
    for part in ("start", "noise", "drift"):
        there = bound(PROBLEM, option, 4, found[part])[part]
        assert there == pytest.approx(1e-3)
    if name == "fedprox":  # alpha E^(3/2) G^2/La and alpha^2 L sqrt(E) G^2/(16 La^3)
        assert found["pull"] == pytest.approx((0.7 * 8 * 3 / 2.7 / 1e-3) ** 2)
        late = (0.49 * 2 * 2 * 3 / (16 * 2.7**3) / 1e-3) ** (2 / 3)
        assert found["late pull"] == pytest.approx(late)


def test_a_bound_that_stays_above_is_refused() -> None:
    with pytest.raises(PoiseError, match="does not fall to"):
        theory.least_rounds(lambda t: theory.fedprox_bound(PROBLEM, 0.0, 2, t), 1e-3)
