"""Where FedAvg must end on quadratic clients is known in closed form.

Client i has L_i(w) = c_i/2 |w - o_i|^2. One local step of rate eta maps w to w - eta c_i (w - o_i),
so K steps shrink the distance to its own optimum by r_i = (1 - eta c_i)^K:

    w_i^K = o_i + r_i (w - o_i),          Delta_i = (1 - r_i) (o_i - w).

A round with weights p_i is w <- w + sum_i p_i (1 - r_i)(o_i - w): a contraction to

    w* = sum_i p_i (1 - r_i) o_i / sum_i p_i (1 - r_i).

For K = 1, 1 - r_i = eta c_i and w* is the optimum of sum_i p_i L_i. For K > 1 and unequal curvature
it is not: the well-known bias of FedAvg. With weight decay lam, c_i becomes c_i + lam and o_i
becomes c_i o_i/(c_i + lam).
"""

from __future__ import annotations

import numpy as np
import pytest

import poise
from parameters import thorough_except
from poise.samplers import Uniform
from poise.servers import Add
from poise.solvers import SGD
from poise.tasks import Quadratics

OPTIMA = np.array([[1.0, -2.0], [4.0, 0.5], [-3.0, 2.0], [0.0, 6.0]])
CURVATURE = np.array([0.5, 1.0, 2.0, 4.0])
SIZES = [1, 5, 2, 8]
P = np.array(SIZES) / sum(SIZES)


def problem() -> Quadratics:
    return poise.quadratics(OPTIMA, CURVATURE, SIZES)


def end_of_fedavg(lr: float, steps: int, decay: float = 0.0) -> np.ndarray:
    """The closed form above."""
    c = CURVATURE + decay
    o = (CURVATURE / c)[:, None] * OPTIMA
    pull = P * (1 - (1 - lr * c) ** steps)
    return pull @ o / pull.sum()


def test_one_local_step_reaches_the_federated_optimum() -> None:
    run = poise.train(problem(), problem().task, SGD(lr=0.1, steps=1), rounds=400)
    optimum = (P * CURVATURE) @ OPTIMA / (P @ CURVATURE)
    assert np.abs(run.model - optimum).max() < 1e-8
    assert np.allclose(end_of_fedavg(0.1, 1), optimum)
    assert np.isclose(
        run.metric("loss")[-1],
        0.5 * P @ (CURVATURE * ((run.model - OPTIMA) ** 2).sum(axis=1)),
    )


@pytest.mark.parametrize("steps", thorough_except([2], [2, 5, 20]))
@pytest.mark.parametrize("decay", [0.0, 0.3])
@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_more_local_steps_go_to_the_biased_point(
    steps: int, decay: float, rate: float
) -> None:
    solver = SGD(lr=0.1, steps=steps, weight_decay=decay)
    run = poise.train(
        problem(),
        problem().task,
        solver,
        server=Add(rate),
        rounds=200,
        evaluate_every=200,
    )
    biased = end_of_fedavg(0.1, steps, decay)
    assert np.abs(run.model - biased).max() < 1e-8
    assert np.abs(biased - end_of_fedavg(0.1, 1, decay)).max() > 0.05, (
        "the bias is there to be seen"
    )


def test_epochs_on_exact_gradients_are_steps() -> None:
    runs = [
        poise.train(problem(), problem().task, s, rounds=5)
        for s in (SGD(lr=0.1, steps=3), SGD(lr=0.1, epochs=3))
    ]
    assert np.array_equal(runs[0].model, runs[1].model)


def test_the_whole_trajectory_is_the_closed_form() -> None:
    run = poise.train(
        problem(), problem().task, SGD(lr=0.05, steps=4), rounds=30, keep="all"
    )
    w = np.zeros(2)
    pull = P * (1 - (1 - 0.05 * CURVATURE) ** 4)
    for n in range(31):
        assert np.abs(run.models(n) - w).max() < 1e-12
        w = w + pull @ (OPTIMA - w)


def test_uniform_sampling_is_unbiased() -> None:
    """The mean over seeds of the model after 3 rounds is that of full participation: 4.5 sigma,
    fixed seeds.

    On quadratics a round is affine in the model, so the expectation of the model follows the
    deterministic map.
    """
    solver, rounds, seeds = SGD(lr=0.05, steps=3), 3, 250
    full = poise.train(problem(), problem().task, solver, rounds=rounds).model
    ends = np.array(
        [
            poise.train(
                problem(),
                problem().task,
                solver,
                Uniform(2),
                rounds=rounds,
                seed=s,
                evaluate_every=9,
            ).model
            for s in range(seeds)
        ]
    )
    error = ends.std(axis=0, ddof=1) / np.sqrt(seeds)
    assert (error > 0).all()
    assert (np.abs(ends.mean(axis=0) - full) < 4.5 * error).all(), (
        ends.mean(axis=0),
        full,
        error,
    )


def test_momentum_has_the_same_fixed_point_for_one_client() -> None:
    one = poise.quadratics([[3.0, -1.0]], 2.0)
    run = poise.train(one, one.task, SGD(lr=0.05, steps=10, momentum=0.8), rounds=100)
    assert np.abs(run.model - [3.0, -1.0]).max() < 1e-8


def test_learning_rate_decay_is_per_round() -> None:
    one = poise.quadratics([[1.0]], 1.0)
    run = poise.train(
        one, one.task, SGD(lr=0.5, steps=1, decay=0.5), rounds=3, keep="all"
    )
    distance = np.cumprod([1 - 0.5, 1 - 0.25, 1 - 0.125])
    assert np.allclose([1 - run.models(n)[0] for n in (1, 2, 3)], distance, atol=1e-15)
