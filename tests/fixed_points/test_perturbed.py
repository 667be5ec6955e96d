"""The perturbed gradient against a second implementation, its lemma, its limits and its rate.

Source: [Buttaci 2024, Alg. 2].
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poise
from faults.support import run_into, same
from poise.clocks import Asynchronous
from poise.core.errors import PoiseError
from poise.graph import similarity
from poise.samplers import MD, Uniform
from poise.servers import Adam, Momentum
from poise.solvers import SGD, Perturbed, Prox
from poise.training import resume
from poise.weightings import Adjacency, Proportional

OPTIMA = np.array([[4.0, 1.0], [3.0, 2.0], [1.0, 5.0], [-2.0, 3.0]])
CURVATURE = np.array([1.0, 0.4, 0.7, 0.9])


def quad() -> Any:
    return poise.quadratics(OPTIMA, curvature=CURVATURE)


def algorithm_2(
    beta: float, lr: float, steps: int, cohorts: list[np.ndarray]
) -> list[np.ndarray]:
    """The paper's pseudo-code with full gradients; weights of a cohort as the sampler's base
    weights scale them."""
    graph = similarity(quad())
    shares, p = graph.shares, graph.weights
    theta, local = np.zeros(2), np.zeros((4, 2))
    models = [theta]
    for weights in cohorts:
        means = shares @ local / p[:, None]
        fresh = local.copy()
        for i in np.flatnonzero(weights):
            w = theta.copy()
            for _ in range(steps):
                at = beta * w + (1 - beta) * means[i]
                w = w - lr * CURVATURE[i] * (at - OPTIMA[i])
            fresh[i] = w
        change = sum(
            weights[i] * 4 * p[i] * (fresh[i] - theta) for i in np.flatnonzero(weights)
        )
        theta, local = theta + change, fresh
        models.append(theta)
    return models


@pytest.mark.parametrize("beta", [0.5, 0.9])
def test_it_is_algorithm_2(beta: float) -> None:
    fed = quad()
    run = poise.train(
        fed,
        fed.task,
        Perturbed(beta, lr=0.1, steps=3),
        weighting=Adjacency(),
        rounds=12,
        keep="all",
    )
    models = algorithm_2(beta, 0.1, 3, [np.full(4, 0.25)] * 12)
    assert np.allclose([run.models(n) for n in range(13)], models, atol=1e-12)
    assert np.allclose(run.weights, similarity(fed).weights)


def test_with_partial_participation_those_who_have_not_worked_count_with_the_first_model() -> (
    None
):
    fed = quad()
    records: list[Any] = []
    run = poise.train(
        fed,
        fed.task,
        Perturbed(0.6, lr=0.1, steps=2),
        sampler=Uniform(2),
        weighting=Adjacency(),
        rounds=10,
        keep="all",
        callbacks=[records.append],
    )
    cohorts = []
    for record in records:
        weights = np.zeros(4)
        weights[[c.client for c in record.contributions]] = [
            c.base for c in record.contributions
        ]
        cohorts.append(weights)
    models = algorithm_2(0.6, 0.1, 2, cohorts)
    assert np.allclose([run.models(n) for n in range(11)], models, atol=1e-12)


def test_beta_one_is_sgd_bit_for_bit() -> None:
    fed = poise.federation("synthetic", clients=4, seed=0)
    runs = [
        poise.train(fed, poise.task("mlp", hidden=8), solver, rounds=5, seed=1)
        for solver in (
            SGD(lr=0.1, steps=3, batch_size=4),
            Perturbed(1.0, lr=0.1, steps=3, batch_size=4),
        )
    ]
    assert runs[0].model.tobytes() == runs[1].model.tobytes()


def test_the_prox_term_is_that_of_prox() -> None:
    fed = quad()
    a = poise.train(fed, fed.task, Prox(0.3, lr=0.1, steps=4), rounds=6)
    b = poise.train(fed, fed.task, Perturbed(1.0, mu=0.3, lr=0.1, steps=4), rounds=6)
    assert a.model.tobytes() == b.model.tobytes()


def test_lemma_4_3_in_a_running_federation() -> None:
    """Sum p_i (beta w_i + (1 - beta) u_i) = beta w_bar + (1 - beta) theta after full rounds: sum
    p_i u_i = theta."""
    fed, graph = quad(), similarity(quad())
    sent: dict[int, np.ndarray] = {}
    from poise.core import neighbours

    plain = neighbours.sent

    def watched(algorithm_state: Any, started: Any, shares: Any) -> Any:
        after = plain(algorithm_state, started, shares)
        sent.update(
            {
                f.client: after.client_state[f.client][neighbours.MEAN].numpy()
                for f in started
            }
        )
        return after

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbours, "sent", watched)
        run = poise.train(
            fed,
            fed.task,
            Perturbed(0.7, lr=0.1, steps=3),
            weighting=Adjacency(),
            rounds=7,
            keep="all",
        )
    mean = sum(graph.weights[i] * sent[i] for i in range(4))
    assert np.allclose(mean, run.models(7), atol=1e-12)


@pytest.mark.parametrize("beta", [0.5, 0.7, 0.9])
def test_it_contracts_no_slower_than_the_theorem_says(beta: float) -> None:
    """Clients that agree on the optimum, step 1/(2 L E): the gap falls by 1 - mu/((beta + 2) L) per
    round or more."""
    curvature, steps = np.array([1.0, 0.25, 0.5]), 4
    directions = np.array([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]])
    fed = poise.quadratics(directions, curvature=curvature)
    lr = 1 / (2 * curvature.max() * steps)
    run = poise.train(
        fed,
        fed.task,
        Perturbed(beta, lr=lr, steps=steps),
        weighting=Adjacency(),
        rounds=60,
        keep="all",
    )
    p = similarity(fed).weights
    strong, smooth = float(p @ curvature), float(curvature.max())
    gaps = np.array(
        [0.5 * strong * np.sum((run.models(n) - directions[0]) ** 2) for n in range(61)]
    )
    mu = float(curvature.min())
    rate = 1 - mu / ((beta + 2) * smooth)
    assert (gaps[1:] <= smooth / mu * gaps[0] * rate ** np.arange(1, 61)).all()
    assert gaps[-1] < 1e-3 * gaps[0]


@pytest.mark.parametrize(
    "options",
    [
        {"server": Adam(lr=0.05)},
        {"server": Momentum(lr=0.5, beta=0.5)},
        {"sampler": MD(3)},
    ],
)
def test_it_combines(options: Any) -> None:
    fed = quad()
    run = poise.train(
        fed,
        fed.task,
        Perturbed(0.7, mu=0.1, lr=0.05, steps=2),
        weighting=Proportional(),
        rounds=40,
        **options,
    )
    assert run.metric("loss")[-1] < run.metric("loss")[0]


def test_the_way_down_is_doubled_and_recorded() -> None:
    fed = quad()
    plain = poise.train(fed, fed.task, SGD(lr=0.1, steps=1), rounds=2)
    doubled = poise.train(fed, fed.task, Perturbed(0.5, lr=0.1, steps=1), rounds=2)
    assert np.array_equal(doubled.bytes_down, 2 * plain.bytes_down)
    assert np.array_equal(doubled.bytes_up, plain.bytes_up)


def test_it_is_refused_where_it_has_no_meaning() -> None:
    fed = quad()
    with pytest.raises(PoiseError, match="for every assignment"):
        poise.train(
            fed,
            fed.task,
            Perturbed(0.5, lr=0.1, steps=1),
            clock=Asynchronous("F80"),
            rounds=1,
        )
    crowd = poise.federation(
        "synthetic", clients=500, on_demand=True, samples_per_client=5
    )
    for part in (
        {"solver": Perturbed(0.5, lr=0.1, steps=1)},
        {"solver": SGD(lr=0.1, steps=1), "weighting": Adjacency()},
    ):
        with pytest.raises(PoiseError, match=r"made on demand|no similarity graph"):
            poise.train(
                crowd, poise.task("logistic"), sampler=Uniform(3), rounds=1, **part
            )
    with pytest.raises(PoiseError, match="beta"):
        Perturbed(0.0, lr=0.1, steps=1)


FILE = """
[data]
source = "digits"
clients = 5
samples = 200
[task]
model = "logistic"
[solver]
name = "perturbed"
beta = 0.6
lr = 0.1
steps = 3
batch_size = 8
[sampler]
name = "uniform"
m = 2
[weighting]
name = "adjacency"
[run]
rounds = 10
"""


@pytest.mark.parametrize("after", [1, 6])
def test_a_resumed_run_ends_the_same(after: int, tmp_path: Path) -> None:
    whole, part = (
        run_into(FILE, tmp_path / "whole"),
        run_into(FILE, tmp_path / "part", stop_after=after),
    )
    resume(part).close()
    same(part, whole)
