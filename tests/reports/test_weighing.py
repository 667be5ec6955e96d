"""Distances from the base weights, weights by trait: the numbers behind the pictures, and the
pictures."""

from __future__ import annotations

import json

import numpy as np
import pytest

import poise
from poise.analysis.reports import (
    Group,
    departure,
    group_runs,
    trait_weights,
    weight_departure,
    weights_by_trait,
)
from poise.analysis.reports.plots import plots
from reports.ledgers import made_run

RATIOS = np.array([1.0, 1.0, 0.1, 0.1])


def weighed(
    coefficients: list[dict[int, float]],
    bases: list[dict[int, float]],
    **options: object,
):
    return made_run(
        rounds=len(coefficients), cohorts=coefficients, bases=bases, **options
    )


def test_departure_by_hand() -> None:
    run = weighed(
        [{0: 0.7, 1: 0.3}, {0: 0.5, 2: 0.5}, {1: 1.0, 3: 0.0}],
        [{0: 0.5, 1: 0.5}, {0: 2.0, 2: 2.0}, {1: 1.0, 3: 1.0}],
    )
    assert departure(run) == pytest.approx(
        [0.4, 0.0, 1.0]
    )  # shares of a round: base weights need not sum to one


def test_departure_of_a_round_without_weight_is_not_a_number() -> None:
    run = weighed([{0: 0.0, 1: 0.0}, {0: 1.0}], [{0: 0.5, 1: 0.5}, {0: 1.0}])
    assert np.isnan(departure(run)[0])
    assert departure(run)[1] == 0


def test_departure_of_a_real_run_is_what_the_weighting_did() -> None:
    quad = poise.quadratics([[0.0], [1.0], [5.0]])
    solver = poise.solvers.SGD(lr=0.1, steps=1)
    plain = poise.train(quad, quad.task, solver, rounds=4)
    soft = poise.train(
        quad, quad.task, solver, rounds=4, weighting=poise.weightings.SoftMax(1.0)
    )
    assert departure(plain).tolist() == [0.0] * 4
    by_hand = np.abs(soft.weights - 1 / 3).sum(axis=1)
    assert departure(soft) == pytest.approx(by_hand)
    assert by_hand.min() > 0.1


def test_weights_by_trait_by_hand() -> None:
    arrays = {"trait/imbalance ratio": RATIOS}
    one = weighed(
        [{0: 0.6, 2: 0.4}, {1: 0.8, 3: 0.2}],
        [{0: 0.5, 2: 0.5}, {1: 0.5, 3: 0.5}],
        arrays=arrays,
    )
    two = weighed(
        [{0: 0.5, 1: 0.4, 2: 0.1}], [{0: 0.4, 1: 0.4, 2: 0.2}], arrays=arrays, seed=1
    )
    low, high = weights_by_trait([one, two], "imbalance ratio")
    assert (low.value, high.value) == (0.1, 1.0)
    assert low.weight.mean == pytest.approx((0.3 + 0.1) / 2)
    assert high.weight.mean == pytest.approx((0.7 + 0.45) / 2)
    assert low.base == pytest.approx((0.5 + 0.2) / 2)
    assert (low.contributions, high.contributions) == (3, 4)


def test_flipped_clients_are_known_to_the_ledger_and_weigh_less() -> None:
    fed = poise.federation("digits", clients=12, on_demand=True, samples_per_client=60)
    fed = fed.with_corruption("flip-labels", rate=0.5, ratio=1.0)
    solver = poise.solvers.SGD(lr=0.5, epochs=3, batch_size=20)
    sampler, weighting = poise.samplers.Uniform(m=12), poise.weightings.Exp(0.2)
    run = poise.train(
        fed, poise.task("logistic"), solver, sampler, rounds=8, weighting=weighting
    )
    flipped = fed.corruptions[0].corrupted(np.arange(12))
    assert run.traits["flip ratio"].tolist() == flipped.astype(float).tolist()
    clean, wrong = weights_by_trait([run], "flip ratio")
    assert clean.weight.mean == pytest.approx(run.weights[:, ~flipped].mean())
    assert wrong.weight.mean == pytest.approx(run.weights[:, flipped].mean())
    assert wrong.weight.mean < clean.weight.mean


def test_imbalance_ratios_are_known_to_the_ledger() -> None:
    fed = poise.federation(
        "digits",
        "imbalanced",
        clients=9,
        on_demand=True,
        samples_per_client=50,
        equal_sizes=True,
    )
    solver = poise.solvers.SGD(lr=0.1, steps=1, batch_size=10)
    run = poise.train(
        fed, poise.task("logistic"), solver, poise.samplers.Uniform(m=3), rounds=1
    )
    ratios, counts = run.traits["imbalance ratio"], fed.label_counts()
    assert set(ratios) <= {1.0, 0.5, 0.1, 0.05, 0.01, 0.005, 0.001}
    assert (
        np.argsort(-ratios, kind="stable") == np.argsort(counts[:, 0], kind="stable")
    ).all()


def test_pictures_show_these_numbers() -> None:
    arrays = {"trait/flip ratio": np.array([0.0, 1.0, 0.0, 1.0])}
    run = weighed(
        [{0: 0.9, 1: 0.1}, {2: 0.8, 3: 0.2}],
        [{0: 0.5, 1: 0.5}, {2: 0.5, 3: 0.5}],
        arrays=arrays,
    )
    curve = weight_departure([Group("g", (run,))])
    assert curve.data[0].y.tolist() == pytest.approx([0.8, 0.6])
    bars, base = trait_weights([Group("g", (run,))], "flip ratio").data
    assert list(bars.x) == ["0", "1"]
    assert list(bars.y) == pytest.approx([0.85, 0.15])
    assert list(base.y) == pytest.approx([0.5, 0.5])


def test_a_page_has_them_where_there_is_something_to_see() -> None:
    plain = made_run({"accuracy": [0.1, 0.2]})
    titles = [plot.title for plot in plots(group_runs([plain]))]
    assert not [
        title for title in titles if "base weights" in title or "Mean weight" in title
    ]
    arrays = {
        "trait/flip ratio": np.array([0.0, 1.0, 0.0, 1.0]),
        "trait/imbalance ratio": np.ones(4),
    }
    run = weighed([{0: 0.9, 1: 0.1}], [{0: 0.5, 1: 0.5}], arrays=arrays)
    found = {plot.title: plot for plot in plots(group_runs([run]))}
    assert "Distance of the weights from the base weights" in found
    assert "Weight per contribution by flip ratio" in found
    assert "Weight per contribution by imbalance ratio" not in found, (
        "all clients have the same"
    )
    data = json.loads(found["Weight per contribution by flip ratio"].views[0][1])[
        "data"
    ]
    assert data[0]["x"] == ["0", "1"]
