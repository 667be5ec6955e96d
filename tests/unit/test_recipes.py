"""Every recipe names parts that run together."""

from __future__ import annotations

import pytest

import poise
from poise.recipes import RECIPES

QUAD = poise.quadratics([[0.0], [4.0], [10.0]])


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_trains(name: str) -> None:
    times = [1.0, 0.7, 0.4]
    needed = {
        "dp-fedavg": {"clip": 100.0, "sigma": 1e-3},
        "fedprox": {"mu": 0.1},
        "fedfix": {"dt": 0.5, "durations": times},
        "fedbuff": {"c": 2, "durations": times},
        "async-fedavg": {"durations": times},
        "fedasync": {"durations": times},
    }.get(name, {})
    work = {} if name == "fedsgd" else {"steps": 2}
    run = poise.train(
        QUAD, QUAD.task, **RECIPES[name](lr=0.1, **work, **needed), rounds=30
    )
    if (
        "better" not in name
    ):  # methods for the better clients may leave the others behind
        assert run.metric("loss")[-1] < run.metric("loss")[0]
    assert 0 <= run.model[0] <= 10  # between the clients' optima
    if (
        "durations" not in needed
    ):  # weights of single arrivals sum to one in the long run only
        assert run.weights[-1].sum() == pytest.approx(1.0)


def test_recipes_choose_the_parts_that_their_papers_name() -> None:
    chosen = RECIPES["fedsoftbetter-avg"](lr=0.1, steps=1)["weighting"]
    assert chosen == poise.weightings.Switch(
        [(20, poise.weightings.SoftMin(0.2)), (None, poise.weightings.Proportional())]
    )
    three = RECIPES["fedsoftbetter-avg-softworse"](lr=0.1, steps=1)["weighting"]
    assert three == poise.weightings.Switch(
        [
            (20, poise.weightings.SoftMin(0.2)),
            (40, poise.weightings.Proportional()),
            (None, poise.weightings.SoftMax(0.2)),
        ]
    )
    later = RECIPES["fedavg-softbetter"](lr=0.1, steps=1)["weighting"]
    assert later == poise.weightings.Switch(
        [(20, poise.weightings.Proportional()), (None, poise.weightings.SoftMin(0.2))]
    )
    annealed = RECIPES["fedsoftworse-avg-annealed"](over=5, lr=0.1, steps=1)
    assert annealed["weighting"] == poise.weightings.Anneal(
        poise.weightings.SoftMax(0.2), poise.weightings.Proportional(), over=5
    )
    assert RECIPES["fedworse"](k=3, lr=0.1, steps=1)[
        "weighting"
    ] == poise.weightings.Max(3)
