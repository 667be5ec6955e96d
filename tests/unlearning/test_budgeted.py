"""`Budgeted`: requests restart at the end, because clients stop before their limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poise
from faults.support import opened, run_into, same
from poise import clocks, samplers, solvers
from poise.analysis.explain import left_out
from poise.core.errors import IncompatibleParts, InvalidOption
from poise.core.history import History
from poise.core.parts import build, describe
from poise.core.sensitivity import Psi
from poise.core.types import Setting
from poise.samplers import MD, Budgeted, Full, Poisson, Target, Uniform
from poise.training import resume
from poise.unlearning import Budget, sensitivity

OPTIMA = np.array([[1.0, 0.0], [0.0, 2.0], [-1.0, 1.0], [3.0, -2.0]])
CURVATURE = np.array([1.0, 0.5, 2.0, 0.8])
IMPORTANCE = np.array([0.1, 0.2, 0.3, 0.4])
BUDGET = Budget(epsilon=10.0, delta=0.01, sigma=0.05)


def quadratic_run(sampler: Any, rounds: int = 30, **options: Any) -> Any:
    quad = poise.quadratics(OPTIMA, CURVATURE, sizes=[1, 2, 3, 4])
    solver = solvers.SGD(lr=0.2, steps=1)
    return poise.train(
        quad,
        quad.task,
        **{"solver": solver, "sampler": sampler, "rounds": rounds, **options},
    )


def digits(**options: Any) -> Any:
    return poise.federation(
        "digits", "dirichlet", clients=8, alpha=0.5, samples=400, **options
    )


def logistic_run(sampler: Any, **options: Any) -> Any:
    chosen = {
        "solver": solvers.SGD(lr=0.05, steps=2, batch_size=16),
        "sampler": sampler,
        "rounds": 30,
        "seed": 3,
        **options,
    }
    return poise.train(digits(), poise.task("logistic"), **chosen)


# the rule ---------------------------------------------------------------------


def by_hand(theta: np.ndarray, limit: float, rounds: int) -> tuple[Any, Any, Any]:
    """The rule, the models and eq. 5.8 from the closed form of local work on quadratics."""
    psi = np.zeros(4)
    largest = 0.0
    weights = np.zeros((rounds, 4))
    for n in range(rounds):
        asked = psi + largest <= limit
        weights[n, asked] = IMPORTANCE[asked]
        deltas = -0.2 * CURVATURE[:, None] * (theta - OPTIMA)
        direction = weights[n] @ deltas
        for c in np.flatnonzero(asked):
            others = weights[n].copy()
            others[c] = 0.0
            without = np.zeros(2)
            if others.any():
                without = others @ deltas * (weights[n].sum() / others.sum())
            contribution = float(np.linalg.norm(direction - without))
            psi[c] += contribution
            largest = max(largest, contribution)
        theta = theta + direction
    return weights, theta, psi


@pytest.mark.parametrize("limit", [0.3, 0.6, 1.0])
def test_a_run_on_quadratics_by_hand(limit: float) -> None:
    run = quadratic_run(Budgeted(limit=limit), keep="all")
    weights, theta, psi = by_hand(run.models(0), limit, run.rounds)
    assert 0 < (weights == 0).sum() < weights.size, "somebody was left out, not always"
    assert np.allclose(run.weights, weights)
    assert np.allclose(run.model, theta)
    assert np.allclose(sensitivity(run)[-1], psi)


def test_the_largest_contribution_over_clients_and_rounds() -> None:
    psi = Psi()
    everyone = np.array([0, 1])
    for moved in ([0.1, 0.4], [0.3, np.nan]):
        psi.take(everyone, np.array([0.5, 0.5]), np.array(moved), np.array([1, 1]))
    assert psi.largest == 0.4
    assert psi.of(0) == pytest.approx(0.4)
    assert psi.of(1) == np.inf


def test_a_client_is_asked_up_to_the_limit_and_not_beyond() -> None:
    setting = Setting(4, np.ones(4, int), IMPORTANCE)
    past = History(psi=Psi(values={0: 0.75, 1: 0.76, 3: np.inf}, largest=0.25))
    cohort = Budgeted(limit=1.0).draw(setting, np.random.default_rng(0), 5, past)
    assert cohort.clients.tolist() == [0, 2]
    assert cohort.weights.tolist() == [0.1, 0.3], "the others keep their weights"
    nobody = Budgeted(limit=0.2).draw(setting, np.random.default_rng(0), 5, past)
    assert len(nobody.clients) == len(nobody.weights) == 0


@pytest.mark.parametrize(
    "sampler",
    [Full(), Uniform(3), MD(3, independent_draws=True), Poisson(2)],
    ids=lambda s: s.name,
)
def test_with_room_for_all_it_is_the_wrapped_sampler(sampler: Any) -> None:
    plain = quadratic_run(sampler)
    limited = quadratic_run(Budgeted(sampler, limit=1e6))
    assert np.array_equal(plain.weights, limited.weights)
    assert plain.model.tobytes() == limited.model.tobytes()


def test_without_any_client_left_the_model_stays() -> None:
    run = quadratic_run(Budgeted(limit=0.0), keep="all")
    assert (run.weights[0] > 0).all(), "nothing protects the first round"
    assert not run.weights[1:].any()
    assert np.array_equal(run.models(1), run.model)
    assert run.rounds == 30


# Psi stays within Psi* ----------------------------------------------------------

DRAWS = [
    Full(),
    Uniform(3),
    Uniform(3, absent="keep"),
    MD(3),
    samplers.ClusteredBySize(3),
    samplers.ClusteredBySimilarity(3),
    samplers.PowerOfChoice(2, 4),
]


@pytest.mark.parametrize("sampler", DRAWS, ids=lambda s: s.name)
def test_every_sensitivity_stays_within_the_limit(sampler: Any) -> None:
    logistic = logistic_run(Budgeted(sampler), unlearning=BUDGET)
    psi = sensitivity(logistic)
    assert psi.max() <= BUDGET.limit
    assert sensitivity(logistic_run(sampler)).max() > BUDGET.limit


@pytest.mark.parametrize("seed", range(3))
def test_every_sensitivity_stays_within_the_limit_on_quadratics(seed: int) -> None:
    run = quadratic_run(Budgeted(MD(3), limit=4.0), rounds=80, seed=seed)
    assert sensitivity(run).max() <= 4.0
    assert sensitivity(quadratic_run(MD(3), rounds=80, seed=seed)).max() > 4.0


@pytest.mark.parametrize(
    "clock",
    [clocks.Asynchronous("F80"), clocks.FixedWindow(0.5, "F80"), clocks.Buffered(2)],
    ids=lambda c: c.name,
)
def test_other_clocks(clock: Any) -> None:
    run = quadratic_run(Budgeted(limit=2.0), clock=clock, rounds=60)
    assert 0 < sensitivity(run).max() <= 2.0


def test_clients_whose_sensitivity_fades_are_asked_again() -> None:
    fading = Budget(epsilon=10.0, delta=0.01, sigma=0.4, strong_convexity=0.5)
    run = quadratic_run(Budgeted(), unlearning=fading, rounds=40)
    psi = sensitivity(run, strong_convexity=0.5)
    assert psi.max() <= fading.limit
    asked = run.weights > 0
    assert (~asked[:-1] & asked[1:]).any()
    moved = np.zeros_like(run.weights)
    rows = run.contributions
    moved[rows["round"], rows["client"]] = run.measurement("moved")
    largest = np.maximum.accumulate(moved.max(axis=1))
    within = psi[1:-1] + largest[:-1, None] <= fading.limit
    assert np.array_equal(asked[1:], within)


# requests -------------------------------------------------------------------------


@pytest.mark.parametrize("keep", ["all", "unlearnable", "last"])
def test_a_request_restarts_from_the_newest_model(keep: Any, tmp_path: Path) -> None:
    options = {
        "min_rounds": 2,
        "max_rounds": 4,
        "target": 2.0,
        "noise": "seeded",
    }
    run = logistic_run(
        Budgeted(), unlearning=BUDGET, keep=keep, out=tmp_path / "budgeted"
    )
    worst = int(sensitivity(run)[-1].argmax())
    done = poise.unlearn(run, [worst], **options)
    assert done.restart == (0, 30)
    again = poise.unlearn(run.path, [(worst + 1) % 8], **options)
    assert again.restart == (1, 4)
    free = logistic_run(Full(), unlearning=BUDGET, keep=keep, out=tmp_path / "free")
    early = poise.unlearn(free, [worst], **options)
    assert early.restart[1] < 30


def test_the_branch_keeps_the_limit_of_the_training(tmp_path: Path) -> None:
    run = logistic_run(
        Budgeted(), unlearning=BUDGET, keep="all", out=tmp_path / "run", rounds=5
    )
    done = poise.unlearn(
        run,
        [0],
        min_rounds=2,
        max_rounds=40,
        target=2.0,
        noise="seeded",
    )
    psi = sensitivity(done.run)
    assert BUDGET.limit / 2 < psi.max() <= BUDGET.limit


# the limit --------------------------------------------------------------------------


def test_where_the_limit_comes_from() -> None:
    guarantee = {"epsilon": 10.0, "delta": 0.01, "sigma": 0.05}
    same_limit = [
        logistic_run(Budgeted(limit=BUDGET.limit)),
        logistic_run(Budgeted(**guarantee)),
        logistic_run(Budgeted(), unlearning=BUDGET),
        logistic_run(Budgeted(limit=9.0), unlearning=BUDGET),
        logistic_run(Budgeted(), keep="unlearnable"),
    ]
    for run in same_limit[1:]:
        assert run.model.tobytes() == same_limit[0].model.tobytes()
    tighter = logistic_run(Budgeted(limit=0.05), unlearning=BUDGET)
    assert sensitivity(tighter).max() <= 0.05


def test_mistakes_are_named() -> None:
    with pytest.raises(
        IncompatibleParts, match=r"limit .* is not known.*\[unlearning\]"
    ):
        logistic_run(Budgeted())
    with pytest.raises(InvalidOption, match="epsilon, delta alone gives no limit"):
        Budgeted(epsilon=1.0, delta=0.1)
    with pytest.raises(InvalidOption, match="are both given"):
        Budgeted(limit=1.0, epsilon=1.0, delta=0.1, sigma=0.1)
    with pytest.raises(InvalidOption, match="is not a sampler"):
        Budgeted(poise.weightings.Proportional(), limit=1.0)
    with pytest.raises(InvalidOption, match="delta"):
        logistic_run(Budgeted(epsilon=1.0, delta=2.0, sigma=0.1))
    with pytest.raises(IncompatibleParts, match="Uniform") as refused:
        logistic_run(Budgeted(Uniform(99), limit=1.0))
    assert refused.value.where[:2] == ("sampler", "of")


def test_the_table_of_a_file() -> None:
    sampler = Budgeted(Target(2, (0, 0, 1, 1)), limit=0.5)
    assert describe(sampler) == {
        "name": "budgeted",
        "of": {"slot": "sampler", "name": "target", "m": 2, "groups": [0, 0, 1, 1]},
        "limit": 0.5,
    }
    assert build("sampler", describe(sampler)) == sampler
    assert sampler.for_clients([0, 2, 3]).of.groups == (0, 1, 1)
    assert Budgeted(limit=1.0).for_clients([0]) == Budgeted(limit=1.0)


# resume -----------------------------------------------------------------------------

FILE = """
[data]
source = "synthetic"
clients = 12
[task]
model = "logistic"
[solver]
name = "sgd"
lr = 0.1
steps = 3
batch_size = 4
[sampler]
name = "budgeted"
[sampler.of]
slot = "sampler"
{of}
[unlearning]
sigma = 0.15
[run]
rounds = 20
"""


@pytest.mark.parametrize(
    "of",
    ['name = "full"', 'name = "md"\nm = 4', 'name = "clustered-by-similarity"\nm = 3'],
)
@pytest.mark.parametrize("after", [1, 6, 15])
def test_a_resumed_run_draws_what_it_would_have_drawn(
    of: str, after: int, tmp_path: Path
) -> None:
    text = FILE.format(of=of)
    whole = run_into(text, tmp_path / "whole")
    part = run_into(text, tmp_path / "part", stop_after=after)
    resume(part).close()
    same(part, whole)
    with opened(whole) as run:
        assert left_out(run).since, "somebody was left out"
