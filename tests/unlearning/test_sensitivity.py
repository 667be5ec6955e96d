"""Psi against its definition, computed from the models of a run, and as a bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import poise
from poise import samplers, servers, solvers, weightings
from poise.core.errors import IncompatibleParts
from poise.core.round_updates import RoundUpdates
from poise.core.sensitivity import moved
from poise.unlearning import Budget, sensitivity

OPTIMA = np.array([[1.0, 0.0], [0.0, 2.0], [-1.0, 1.0], [3.0, -2.0]])
CURVATURE = np.array([1.0, 0.5, 2.0, 0.8])


def quadratic_run(
    steps: int = 1,
    rounds: int = 8,
    sizes: Any = None,
    curvature: Any = CURVATURE,
    **parts: Any,
) -> Any:
    quad = poise.quadratics(OPTIMA, curvature, sizes)
    solver = solvers.SGD(lr=0.2, steps=steps)
    return poise.train(
        quad, quad.task, solver=solver, rounds=rounds, keep="all", **parts
    )


def updates_at(
    theta: np.ndarray, steps: int, curvature: np.ndarray = CURVATURE
) -> np.ndarray:
    """Local work in closed form: ``theta_i - o_i = (1 - eta c_i)^K (theta - o_i)``."""
    shrink = (1 - 0.2 * curvature) ** steps
    return (shrink - 1)[:, None] * (theta - OPTIMA)


def naively(run: Any, steps: int, lr: float = 1.0) -> np.ndarray:
    """Eq. 5.8 with the cohorts and coefficients that really were, others renormalised inside the
    cohort."""
    psi = np.zeros((run.rounds + 1, run.clients))
    for n in range(run.rounds):
        deltas = updates_at(run.models(n), steps)
        weights = run.weights[n]
        direction = weights @ deltas
        for c in range(run.clients):
            others = weights.copy()
            others[c] = 0.0
            without = (
                others @ deltas * (weights.sum() / others.sum())
                if others.sum() > 0
                else np.zeros(2)
            )
            gap = np.linalg.norm(direction - without) if weights[c] else 0.0
            psi[n + 1, c] = psi[n, c] + lr * gap
    return psi


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"sizes": [1, 2, 3, 4]},
        {"sampler": samplers.Uniform(2)},
        {"sampler": samplers.MD(3)},
        {"sampler": samplers.MD(1)},
        {"sampler": samplers.Binomial(2), "sizes": [4, 3, 2, 1]},
        {"sampler": samplers.Uniform(3), "weighting": weightings.SoftMax(0.5)},
        {"weighting": weightings.Max(2)},
    ],
    ids=["full", "sizes", "uniform", "md", "md one", "binomial", "softmax", "max"],
)
def test_psi_is_its_definition(steps: int, parts: dict[str, Any]) -> None:
    run = quadratic_run(steps, **parts)
    assert np.abs(sensitivity(run) - naively(run, steps)).max() < 1e-10


def test_the_server_rate_scales_it() -> None:
    run = quadratic_run(2, server=servers.Add(lr=0.5))
    assert np.abs(sensitivity(run) - naively(run, 2, lr=0.5)).max() < 1e-10


def test_equal_weights_give_the_formula_of_the_appendix() -> None:
    """Full participation: p_c/(1 - p_c) |theta_c - theta| (eq. D.25)."""
    run = quadratic_run(3, rounds=1)
    local = run.models(0) + updates_at(run.models(0), 3)
    expected = np.linalg.norm(local - run.models(1), axis=1) / 3
    assert sensitivity(run)[1] == pytest.approx(expected, abs=1e-12)


def test_optimism_divides_by_the_federation() -> None:
    """Equal weights, m of M: 1/(M - 1) |theta_c - theta| instead of 1/(m - 1); the same where
    everyone takes part."""
    run = quadratic_run(2, sampler=samplers.Uniform(2))
    ratio = sensitivity(run, "optimistic")[-1] / sensitivity(run)[-1]
    assert ratio == pytest.approx((2 - 1) / (4 - 1), abs=1e-12)
    everyone = quadratic_run(2, sizes=[1, 2, 3, 4])
    assert sensitivity(everyone, "optimistic") == pytest.approx(
        sensitivity(everyone), abs=1e-12
    )


def test_contraction_is_the_sum_of_the_corollary() -> None:
    """Eq. 5.11 written out: every summand fades by (1 - eta mu)^K per round after it."""
    run, mu, steps = quadratic_run(3), 0.5, 3
    parts = np.diff(naively(run, steps), axis=0)
    fade = (1 - 0.2 * mu) ** steps
    for n in range(run.rounds + 1):
        expected = (
            sum(fade ** (n - 1 - s) * parts[s] for s in range(n)) if n else np.zeros(4)
        )
        assert sensitivity(run, strong_convexity=mu)[n] == pytest.approx(
            expected, abs=1e-10
        )


@pytest.mark.parametrize("steps", [1, 4])
def test_retraining_without_a_client_ends_within_psi(steps: int) -> None:
    """alpha(n, c) <= Psi(n, c), by really retraining; the contracting form is tighter and still a
    bound."""
    run = quadratic_run(steps, rounds=12, sizes=[1, 2, 3, 4])
    quad = poise.quadratics(OPTIMA, CURVATURE, [1, 2, 3, 4])
    loose, tight = (
        sensitivity(run),
        sensitivity(run, strong_convexity=float(CURVATURE.min())),
    )
    assert (tight <= loose + 1e-12).all()
    assert tight[-1].max() < 0.8 * loose[-1].max()
    for c in range(4):
        other = poise.train(
            quad.without([c]),
            quad.task,
            solver=solvers.SGD(lr=0.2, steps=steps),
            rounds=12,
            keep="all",
        )
        apart = np.array(
            [np.linalg.norm(run.models(n) - other.models(n)) for n in range(13)]
        )
        assert (apart <= tight[:, c] + 1e-12).all(), c
        assert apart[-1] > 0.01, "a test that cannot fail shows nothing"


@pytest.mark.parametrize("lr", [0.5, 0.1])
def test_a_server_that_keeps_some_of_the_old_model_lets_less_fade(lr: float) -> None:
    """With eta_g < 1 a round contracts by 1 - eta_g (1 - decay^K), not by decay^K."""
    quad, solver = poise.quadratics(OPTIMA, 1.0), solvers.SGD(lr=0.3, steps=3)
    run = poise.train(
        quad, quad.task, solver=solver, server=servers.Add(lr=lr), rounds=30, keep="all"
    )
    psi, loose = sensitivity(run, strong_convexity=1.0), sensitivity(run)
    assert psi[-1].max() < 0.8 * loose[-1].max()
    for c in range(4):
        other = poise.train(
            quad.without([c]),
            quad.task,
            solver=solver,
            server=servers.Add(lr=lr),
            rounds=30,
            keep="all",
        )
        apart = np.array(
            [np.linalg.norm(run.models(n) - other.models(n)) for n in range(31)]
        )
        assert (apart <= psi[:, c] + 1e-12).all(), c


@pytest.mark.parametrize("sampler", [samplers.Binomial(1), samplers.Poisson(1)])
def test_rounds_whose_coefficients_overshoot_are_counted(sampler: Any) -> None:
    """alpha <= Psi where coefficients add up to more than 2; the same others are drawn, in the same
    proportions."""
    quad = poise.quadratics(OPTIMA, 1.0)
    totals, close = [], []
    for seed in range(6):
        run = poise.train(
            quad,
            quad.task,
            solver=solvers.SGD(lr=0.5, steps=5),
            sampler=sampler,
            rounds=40,
            seed=seed,
            keep="all",
        )
        psi, totals = sensitivity(run), [*totals, run.weights.sum(axis=1).max()]
        for c in range(4):
            theta = run.models(0)
            for n, weights in enumerate(run.weights):
                rest = np.where(np.arange(4) == c, 0.0, weights)
                if rest.sum() > 0:
                    local = OPTIMA + 0.5**5 * (theta - OPTIMA)
                    theta = theta + rest * (weights.sum() / rest.sum()) @ (
                        local - theta
                    )
                apart = np.linalg.norm(theta - run.models(n + 1))
                assert apart <= psi[n + 1, c] * (1 + 1e-9) + 1e-12, (seed, n, c)
                close.append(apart / max(psi[n + 1, c], 1e-12))
    assert max(totals) > 2, "a test that cannot fail shows nothing"
    assert max(close) > 0.9


def test_the_contracting_bound_is_met_with_equality_where_all_curve_alike() -> None:
    """Section 5.3.2: it is tight for identical Hessians (one dimension, so that summands point the
    same way)."""
    quad = poise.quadratics([[0.0], [1.0], [5.0]], curvature=0.7)
    solver = solvers.SGD(lr=0.3, steps=2)
    run = poise.train(quad, quad.task, solver=solver, rounds=10, keep="all")
    other = poise.train(
        quad.without([2]), quad.task, solver=solver, rounds=10, keep="all"
    )
    apart = [abs(float(run.models(n)[0] - other.models(n)[0])) for n in range(11)]
    assert sensitivity(run, strong_convexity=0.7)[:, 2] == pytest.approx(
        apart, abs=1e-12
    )


def test_linear_regression_stays_within_psi() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 5)).astype(np.float32)
    y = (x @ rng.normal(size=5) + 0.3 * rng.normal(size=120)).astype(np.float32)
    x[:20] += 1.0
    fed = poise.federation((x, y), [np.arange(20 * i, 20 * i + 20) for i in range(6)])

    class Line(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = torch.nn.Linear(5, 1)

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            return self.line(batch)[:, 0]

    task = poise.Task(module=Line(), loss=torch.nn.functional.mse_loss)
    solver = solvers.SGD(
        lr=0.05, steps=3
    )  # 1/L is above 0.07 for every client (checked below)
    for i in range(6):
        data = np.c_[fed.client(i)[0], np.ones(20)]
        assert 1 / np.linalg.eigvalsh(2 * data.T @ data / 20)[-1] >= 0.05
    run = poise.train(fed, task, solver=solver, rounds=15, keep="all")
    psi = sensitivity(run)
    for c in range(6):
        other = poise.train(
            fed.without([c]),
            task,
            solver=solver,
            rounds=15,
            keep="all",
            start=run.models(0),
        )
        apart = np.array(
            [np.linalg.norm(run.models(n) - other.models(n)) for n in range(16)]
        )
        assert (apart <= psi[:, c] * (1 + 1e-5)).all(), c
        assert apart[-1] > 1e-3


def test_what_fades_must_fade_by_a_known_factor() -> None:
    quad = poise.quadratics(OPTIMA, CURVATURE)
    run = poise.train(
        quad, quad.task, solver=solvers.SGD(lr=0.1, steps=1, momentum=0.9), rounds=2
    )
    with pytest.raises(IncompatibleParts, match="plain SGD"):
        sensitivity(run, strong_convexity=0.5)
    strong = Budget(strong_convexity=20.0)
    with pytest.raises(IncompatibleParts, match="no contraction"):
        strong.contraction(solvers.SGD(lr=0.1, steps=1))


def arrived(
    clients: list[int], deltas: list[list[float]], omega: list[float]
) -> RoundUpdates:
    rows, weights = torch.tensor(deltas, dtype=torch.float64), np.array(omega)
    direction = torch.from_numpy(weights) @ rows
    return RoundUpdates.of_columns(weights, clients=clients, stack=rows).combined(
        weights, direction
    )


def test_by_hand() -> None:
    """Weights 1/2, 1/4, 1/4 on the line: D = 2.5; without the first 1, without the second 3,
    without the third 3.33."""
    found = moved(arrived([0, 1, 2], [[4.0], [1.0], [1.0]], [0.5, 0.25, 0.25]))
    assert found == pytest.approx([1.5, 0.5, 0.5])
    twice = moved(arrived([7, 7, 3], [[4.0], [1.0], [1.0]], [0.5, 0.25, 0.25]))
    assert twice == pytest.approx([1.5, 0.0, abs(2.5 - (0.5 * 4 + 0.25) / 0.75)])
    alone = moved(arrived([7, 7], [[4.0], [1.0]], [0.5, 0.5]))
    assert alone == pytest.approx([2.5, 0.0]), "nobody else: against no step at all"
    assert moved(arrived([0, 1], [[4.0], [1.0]], [0.0, 1.0]))[0] == 0.0
    assert moved(arrived([0, 1], [[4.0], [1.0]], [1.0, -1.0])) == pytest.approx(
        [3.0, 3.0]
    ), "weights that cancel"


def test_a_declared_budget_stops_the_reading_of_clients_beyond_it() -> None:
    free = quadratic_run(2)
    limit = Budget(sigma=0.2)
    run = quadratic_run(2, unlearning=limit)
    assert np.array_equal(run.model, free.model), "reading changes nothing"
    psi, whole = sensitivity(run), sensitivity(free)
    within = whole <= limit.limit
    assert np.array_equal(psi[within], whole[within])
    beyond = np.vstack([np.zeros(4, dtype=bool), whole[:-1] > limit.limit])
    assert np.isinf(psi[beyond]).all()
    assert beyond.any()
    assert within[1:].any()


def test_a_declared_budget_counts_as_it_says_before_it_stops_reading() -> None:
    """The optimistic count is smaller: what it still reaches is still read."""
    budget = Budget(sigma=0.2, participation="optimistic")
    parts = {"sampler": samplers.Uniform(2), "rounds": 10}
    whole = sensitivity(quadratic_run(2, **parts), "optimistic")
    psi = sensitivity(quadratic_run(2, unlearning=budget, **parts), "optimistic")
    within = whole <= budget.limit
    assert (whole > budget.limit).any()
    assert np.array_equal(psi[within], whole[within])
