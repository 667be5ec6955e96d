"""On quadratics, schemes end at the optimum of `explain`'s ``.objective``, to 1e-4."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

import poise
from parameters import thorough_except
from poise.clocks import Asynchronous, Buffered, FixedWindow, Synchronous
from poise.samplers import (
    MD,
    Binomial,
    ClusteredBySize,
    Full,
    Optimal,
    Poisson,
    Target,
    Uniform,
)
from poise.solvers import SGD, Scaffold
from poise.weightings import (
    Adjacency,
    Anneal,
    Discount,
    Exp,
    Identical,
    Proportional,
    SoftMax,
    SoftMin,
    TimeBased,
)

OPTIMA = np.array([[4.0, 0.0], [0.0, 3.0], [-2.0, -1.0], [1.0, -5.0]])
SIZES = [1, 2, 3, 4]
P = np.array(SIZES) / 10
CURVATURE = np.array([1.0, 0.5, 0.8, 0.3])
TAU = np.array([1.0, 0.75, 0.5, 0.25])
FED = poise.quadratics(OPTIMA, curvature=CURVATURE, sizes=SIZES)

Outcomes = Iterator[tuple[float, np.ndarray]]  # probability, weights of all clients


def optimum(weights: np.ndarray) -> np.ndarray:
    """The minimiser of sum_i weights_i c_i/2 |w - o_i|^2."""
    bent = weights * CURVATURE
    return np.asarray(bent @ OPTIMA / bent.sum())


def explained(**parts: Any) -> Any:
    return poise.explain(
        FED, FED.task, **{"solver": SGD(lr=0.05, steps=1), **parts}, estimate=False
    )


# synchronous: the mean over all cohorts, which are written out
# -------------------------------------


def coins(chances: np.ndarray, weight: np.ndarray) -> Outcomes:
    for flips in product([0, 1], repeat=len(chances)):
        on = np.array(flips)
        yield float(np.prod(np.where(on, chances, 1 - chances))), on * weight


def urns(r: np.ndarray) -> Outcomes:
    for chosen in product(range(r.shape[1]), repeat=len(r)):
        yield (
            float(np.prod([r[k, i] for k, i in enumerate(chosen)])),
            np.bincount(chosen, minlength=4) / len(r),
        )


def subsets(m: int, weight: np.ndarray) -> Outcomes:
    found = list(combinations(range(4), m))
    for cohort in found:
        on = np.isin(np.arange(4), cohort)
        yield 1 / len(found), on * weight


SAMPLERS: dict[str, tuple[Any, Any]] = {
    "full": (Full(), lambda: iter([(1.0, P)])),
    "md": (MD(2), lambda: urns(np.tile(P, (2, 1)))),
    "uniform": (Uniform(2), lambda: subsets(2, 2 * P)),
    "absent clients keep the old model": (
        Uniform(2, absent="keep"),
        lambda: subsets(2, P),
    ),
    "binomial": (Binomial(2), lambda: coins(np.full(4, 0.5), 2 * P)),
    "poisson": (Poisson(2), lambda: coins(2 * P, np.full(4, 0.5))),
    "optimal": (
        Optimal(2),
        lambda: coins(
            np.array([0.2, 0.4, 0.6, 0.8]), P / np.array([0.2, 0.4, 0.6, 0.8])
        ),
    ),
    "clustered": (
        ClusteredBySize(2),
        lambda: urns(np.array([[0, 0, 0.2, 0.8], [0.2, 0.4, 0.4, 0]])),
    ),
    "target": (
        Target(2, [0, 1, 0, 1]),
        lambda: urns(Target(2, [0, 1, 0, 1]).distributions(SIZES)),
    ),
}
WEIGHTINGS = {
    "proportional": Proportional(),
    "identical": Identical(),
    "time-based": TimeBased(),
    "adjacency": Adjacency(),
    "discount": Discount(Proportional()),
}


QUICK_SAMPLED = [
    ("full", "time-based"),
    ("md", "proportional"),
    ("uniform", "identical"),
    ("poisson", "adjacency"),
    ("clustered", "discount"),
]


@pytest.mark.parametrize(
    ("sampler", "weighting"),
    thorough_except(QUICK_SAMPLED, product(SAMPLERS, WEIGHTINGS)),
)
def test_sampled_schemes_end_where_the_objective_says(
    sampler: str, weighting: str
) -> None:
    """The mean model moves by the mean of what every possible cohort does, cohort by cohort."""
    part, outcomes = SAMPLERS[sampler]
    weigh = WEIGHTINGS[weighting]
    degree = poise.graph.similarity(FED).shares.sum(axis=1)
    found = explained(sampler=part, weighting=weigh)
    cohorts = []
    for chance, omega in outcomes():
        who = np.flatnonzero(omega)
        weights = weigh.coefficients(  # type: ignore[attr-defined]
            omega[who],
            importance=P[who],
            adjacency=degree[who],
            balance=np.ones(len(who)),
            identical=omega[who],
            versions=np.full(len(who), 7),
            round=7,
        )
        cohorts.append((chance, who, weights))
    assert sum(c for c, *_ in cohorts) == pytest.approx(1.0)
    w = np.zeros(2)
    for _ in range(400):
        w = w + sum(
            chance * (0.5 * weights * CURVATURE[who]) @ (OPTIMA[who] - w)
            for chance, who, weights in cohorts
        )
    assert np.linalg.norm(w - optimum(found.objective)) <= 1e-4
    assert np.allclose(
        found.mean, sum(c * np.bincount(who, v, 4) for c, who, v in cohorts), atol=1e-12
    )
    assert found.unbiased == bool(np.allclose(found.mean, P, atol=1e-9))


# clocks: real runs, over one cycle of the schedule ------------------------------------------------

CLOCKS: dict[str, tuple[Any, int]] = {  # and the length of its cycle
    "asynchronous": (Asynchronous(TAU), 25),
    "fixed window": (FixedWindow(0.4, TAU), 6),
    "buffered": (Buffered(2, TAU), 9),
    "synchronous": (Synchronous(TAU), 1),
    "one for all": (FixedWindow(1.0, TAU), 1),
}
RATES = {
    "proportional": 0.4,
    "adjacency": 0.4,
    "identical": 0.2,
    "time-based": 0.1,
}  # the last two weigh more


QUICK_TIMED = [
    ("asynchronous", "time-based"),
    ("fixed window", "identical"),
    ("buffered", "proportional"),
    ("synchronous", "adjacency"),
]


@pytest.mark.parametrize(
    ("clock", "weighting"),
    thorough_except(QUICK_TIMED, product(CLOCKS, RATES)),
)
def test_timed_schemes_end_where_the_objective_says(clock: str, weighting: str) -> None:
    """When nothing changes any more, the changes of a cycle cancel: sum_n sum_i omega_i c_i (o_i -
    theta[rho_i]) = 0.

    So the mean of the models that clients worked on, weighted with what their answers weighed, is
    the optimum of what is minimised, at any learning rate.
    """
    (part, cycle), weigh = CLOCKS[clock], WEIGHTINGS[weighting]
    found = explained(clock=part, weighting=weigh)
    rounds = 250 + cycle
    run = poise.train(
        FED,
        FED.task,
        SGD(lr=RATES[weighting], steps=1),
        clock=part,
        weighting=weigh,
        rounds=rounds,
        keep="all",
        evaluate_every=rounds,
    )
    total, weight = np.zeros(2), 0.0
    for row in run.contributions[run.contributions["round"] >= rounds - cycle]:
        share = row["coefficient"] * CURVATURE[row["client"]]
        total, weight = total + share * run.models(int(row["version"])), weight + share
    assert np.linalg.norm(total / weight - optimum(found.objective)) <= 1e-4
    assert np.allclose(
        run.weights[rounds - cycle :].mean(axis=0), found.mean, rtol=1e-9
    )


# weights that follow the losses -------------------------------------------------------------------

BY_LOSSES = (
    SoftMax(20.0),
    SoftMax(5.0),
    SoftMin(20.0),
    Exp(2.0),
    Anneal(Proportional(), SoftMax(10.0), over=20),
)


QUICK_LOSSES = [SoftMax(5.0), Exp(2.0)]


@pytest.mark.parametrize(
    "weighting",
    thorough_except(QUICK_LOSSES, BY_LOSSES),
    ids=lambda w: f"{w.name}-{getattr(w, 'temperature', '')}",
)
def test_weights_by_losses_settle_where_the_objective_says(weighting: Any) -> None:
    """With everyone in every round and one step: sum_i c_i(w) grad F_i(w) = 0, whatever the
    learning rate."""
    solver = SGD(lr=0.1, steps=1)
    found = poise.explain(FED, FED.task, solver, weighting=weighting)
    run = poise.train(
        FED, FED.task, solver, weighting=weighting, rounds=500, evaluate_every=500
    )
    assert found.scheme.method.startswith("at the fixed point")
    assert np.linalg.norm(run.model - optimum(found.objective)) <= 1e-4
    assert np.allclose(run.weights[-1], found.mean, atol=1e-4)


# local work ---------------------------------------------------------------------------------------


class Uneven(SGD):
    """SGD in which client i makes n_i steps."""

    traits = SGD.traits

    def steps_for(self, sizes: np.ndarray) -> np.ndarray:
        return np.asarray(sizes, dtype=np.int64)


@pytest.mark.parametrize("momentum", thorough_except([0.6], [0.0, 0.6]))
def test_unequal_local_steps_pull_the_objective(momentum: float) -> None:
    """The end for small steps, by Richardson's extrapolation from three learning rates."""
    ends = []
    for lr in (0.06, 0.03, 0.015):
        solver = Uneven(lr=lr, steps=1, momentum=momentum)
        run = poise.train(
            FED, FED.task, solver, rounds=int(6 / lr), evaluate_every=10**6
        )
        ends.append(run.model)
    found = explained(solver=Uneven(lr=0.06, steps=1, momentum=momentum))
    limit = (ends[0] - 6 * ends[1] + 8 * ends[2]) / 3
    assert np.linalg.norm(limit - optimum(found.objective)) <= 2e-3 * np.linalg.norm(
        limit - optimum(P)
    )
    assert [r.about for r in found.remarks] == ["unequal local steps"]
    assert not found.unbiased


def test_control_variates_take_the_pull_away() -> None:
    class UnevenScaffold(Scaffold):
        traits = Scaffold.traits

        def steps_for(self, sizes: np.ndarray) -> np.ndarray:
            return np.asarray(sizes, dtype=np.int64)

    solver = UnevenScaffold(lr=0.1, steps=1)
    run = poise.train(FED, FED.task, solver, rounds=300, evaluate_every=10**6)
    found = explained(solver=solver)
    assert found.unbiased
    assert np.linalg.norm(run.model - optimum(found.objective)) <= 1e-4
