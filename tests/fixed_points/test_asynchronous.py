"""Where asynchronous schemes end on quadratics is known in closed form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import poise
from parameters import thorough_except
from poise.clocks import (
    Asynchronous,
    Buffered,
    Exponential,
    FixedWindow,
    Synchronous,
    Trace,
)
from poise.core.errors import PoiseError
from poise.samplers import MD, Full, Uniform
from poise.servers import Adam, Momentum
from poise.solvers import SGD, FedDyn, Scaffold
from poise.weightings import (
    Discount,
    Exp,
    Identical,
    Max,
    Proportional,
    SoftMax,
    Switch,
    TimeBased,
)

TAU = np.array([1.0, 0.7, 0.45, 0.2])
OPTIMA = np.array([[4.0, 0.0], [0.0, 3.0], [-2.0, -1.0], [1.0, -5.0]])
SIZES = [1, 2, 3, 4]
P = np.array(SIZES) / 10
CURVATURE = np.array([1.0, 0.5, 0.8, 0.3])

CLOCKS: dict[str, Any] = {
    "asynchronous": Asynchronous(TAU),
    "fixed-window": FixedWindow(0.4, TAU),
    "buffered": Buffered(2, TAU),
}


def optimum(q: np.ndarray) -> np.ndarray:
    """The minimiser of sum_i q_i c_i/2 |w - o_i|^2."""
    weights = q * CURVATURE
    return np.asarray(weights @ OPTIMA / weights.sum())


def surrogate(clock: Any) -> np.ndarray:
    """Q_i = (share of aggregations with client i) x (weight that ignores times), counted on a long
    timeline."""
    counts = np.zeros(4)
    for step in clock.timeline(aggregations=20_000, clients=4):
        counts[step.clients] += 1
    return np.asarray(counts / 20_000 * clock.identical_weights(P, 4))


SMALLEST = {
    "asynchronous": 0.004,
    "fixed-window": 0.01,
    "buffered": 0.0025,
}  # step sizes, and how long they need
PATIENCE = {"asynchronous": 10, "fixed-window": 30, "buffered": 12}


def distance(
    clock: Any,
    weighting: Any,
    lr: float,
    goal: np.ndarray,
    start: np.ndarray,
    patience: float = 10,
) -> float:
    """How far from the goal a run ends that begins at the wrong one."""
    fed = poise.quadratics(OPTIMA, curvature=CURVATURE, sizes=SIZES)
    rounds = int(patience / lr)
    run = poise.train(
        fed,
        fed.task,
        SGD(lr=lr, steps=1),
        clock=clock,
        weighting=weighting,
        rounds=rounds,
        evaluate_every=rounds,
        start=start,
    )
    return float(np.linalg.norm(run.model - goal))


@pytest.mark.parametrize("name", thorough_except(["asynchronous"], CLOCKS))
def test_time_based_reaches_the_optimum_and_identical_the_surrogate(name: str) -> None:
    """The distance falls with the step, and at the smallest is at most 1 % of the distance between
    the two optima."""
    clock = CLOCKS[name]
    asked, other = optimum(P), optimum(surrogate(clock))
    apart = float(np.linalg.norm(asked - other))
    assert apart > 0.2
    for weighting, goal, wrong in (
        (TimeBased(), asked, other),
        (Identical(), other, asked),
    ):
        steps = (10 * SMALLEST[name], SMALLEST[name])
        large, small = (
            distance(clock, weighting, lr, goal, wrong, PATIENCE[name]) for lr in steps
        )
        assert small <= 0.01 * apart
        assert (
            small <= 0.2 * large + 1e-4 * apart
        )  # ten times smaller in proportion, twice that for the cycle's phase


def test_estimated_times_are_as_good_in_the_end() -> None:
    clock = Asynchronous(TAU)
    wrong = optimum(surrogate(clock))
    apart = float(np.linalg.norm(optimum(P) - wrong))
    assert (
        distance(clock, TimeBased(times="estimated"), 0.004, optimum(P), wrong)
        <= 0.03 * apart
    )


def test_example_4_1_of_the_paper() -> None:
    """Two pairs that take turns: theta[n+2] = theta[n+1] + phi (theta* - theta[n]), phi = 1 - (1 -
    lr)^K."""
    optima = np.array([[2.0, 0.0], [0.0, 6.0], [2.0, 0.0], [0.0, 6.0]])
    fed = poise.quadratics(optima)
    run = poise.train(
        fed,
        fed.task,
        SGD(lr=0.1, steps=3),
        clock=Buffered(2, [1.0] * 4),
        weighting=Identical(),
        rounds=60,
        keep="all",
    )
    phi, best = 1 - 0.9**3, np.array([1.0, 3.0])
    thetas = [np.zeros(2), phi * best]
    while len(thetas) < 61:
        thetas.append(thetas[-1] + phi * (best - thetas[-2]))
    assert np.allclose([run.models(n) for n in range(61)], thetas, atol=1e-12)
    assert np.allclose(run.model, best, atol=1e-4)


@pytest.mark.thorough
@pytest.mark.parametrize("importance", [[0.5, 0.5], [0.8, 0.2]])
def test_example_4_2_of_the_paper(importance: list[float]) -> None:
    """Two clients in turns with weights q: the limit is (q1 o1 + q2 o2)/(q1 + q2), up to the
    step."""
    optima = np.array([[1.0], [-1.0]])
    fed = poise.quadratics(optima, sizes=[int(10 * p) for p in importance])
    run = poise.train(
        fed,
        fed.task,
        SGD(lr=0.005, steps=1),
        clock=Asynchronous([1.0, 1.0]),
        weighting=Identical(),
        rounds=3000,
    )
    assert run.model[0] == pytest.approx(importance[0] - importance[1], abs=0.01)


@pytest.mark.parametrize("server", [None, Momentum(lr=0.5, beta=0.5), Adam(lr=0.05)])
def test_one_buffer_or_window_for_all_is_synchronous_training(server: Any) -> None:
    """Trajectory for trajectory, for equal times."""
    fed = poise.quadratics(OPTIMA, curvature=CURVATURE, sizes=SIZES)
    runs = [
        poise.train(
            fed,
            fed.task,
            SGD(lr=0.1, steps=4),
            clock=clock,
            server=server,
            rounds=12,
            keep="all",
        )
        for clock in (
            Synchronous([1.0] * 4),
            Buffered(4, [1.0] * 4),
            FixedWindow(1.0, [1.0] * 4),
            FixedWindow(1.7, [1.0] * 4),
        )
    ]
    for other in runs[1:]:
        assert np.array_equal(other.weights, runs[0].weights)
        assert all(
            np.array_equal(other.models(n), runs[0].models(n)) for n in range(13)
        )


CHOSEN = {
    "max": {"weighting": Max(1)},
    "soft": {"weighting": SoftMax(1.0)},
    "exp": {"weighting": Exp(0.5)},
    "discount": {"weighting": Discount(TimeBased(), kind="hinge", b=1)},
    "switch": {"weighting": Switch([(5, TimeBased()), (None, Proportional())])},
    "estimated": {"weighting": TimeBased(times="estimated"), "sampler": Uniform(2)},
    "uniform": {"sampler": Uniform(2)},
    "md": {"sampler": MD(3)},
    "adam": {"server": Adam(lr=0.1)},
    "scaffold": {"solver": Scaffold(lr=0.05, steps=2)},
    "feddyn": {"solver": FedDyn(alpha=0.5, lr=0.05, steps=2)},
}


@pytest.mark.parametrize("choice", CHOSEN)
@pytest.mark.parametrize(
    "clock",
    [
        *CLOCKS.values(),
        Asynchronous(Exponential(TAU)),
        FixedWindow(0.3, Exponential(TAU)),
    ],
)
def test_everything_combines_with_every_clock(clock: Any, choice: str) -> None:
    """The run stays finite and keeps no more than a cohort in the air; where the weights are tame,
    the loss falls."""
    fed = poise.quadratics(OPTIMA, curvature=CURVATURE, sizes=SIZES)
    records: list[Any] = []
    options = {"solver": SGD(lr=0.05, steps=2), **CHOSEN[choice]}
    run = poise.train(
        fed, fed.task, clock=clock, rounds=60, callbacks=[records.append], **options
    )  # type: ignore[arg-type]
    assert np.isfinite(run.model).all()
    in_air = (
        2
        if isinstance(options.get("sampler"), Uniform)
        else 3
        if "sampler" in options
        else 4
    )
    assert all(len(r.in_flight.assignments) <= in_air for r in records)
    if choice in ("discount", "switch", "estimated", "uniform", "md"):
        assert run.metric("loss")[-1] < run.metric("loss")[0]


@pytest.mark.parametrize(
    "clock", [Asynchronous(), Buffered(2), FixedWindow(0.5)], ids=lambda c: c.name
)
def test_a_client_is_not_drawn_twice_by_a_clock_that_does_not_wait(clock: Any) -> None:
    fed = poise.quadratics(OPTIMA)
    twice = MD(2, independent_draws=True)
    with pytest.raises(PoiseError, match="in flight twice"):
        poise.train(
            fed, fed.task, SGD(lr=0.1, steps=1), rounds=1, clock=clock, sampler=twice
        )


def test_combinations_that_make_no_sense_are_refused() -> None:
    fed = poise.quadratics(OPTIMA)
    solver = SGD(lr=0.1, steps=1)

    def refused(what: str, **parts: Any) -> None:
        with pytest.raises(PoiseError, match=what):
            poise.train(fed, fed.task, solver, rounds=1, **parts)

    refused(
        "Uniform selects",
        clock=Asynchronous(TAU),
        weighting=TimeBased(),
        sampler=Uniform(2),
    )
    refused(
        "in flight twice",
        clock=Asynchronous(TAU),
        sampler=MD(2, independent_draws=True),
    )
    refused(
        "has no mean times",
        clock=Asynchronous(Trace([(i, 0, 1) for i in range(4)])),
        weighting=TimeBased(),
    )
    refused("4 durations for|durations for 4", clock=Asynchronous([1.0, 2.0]))
    poise.train(
        fed,
        fed.task,
        solver,
        rounds=2,
        clock=Synchronous("F80"),
        weighting=TimeBased(),
        sampler=Uniform(2),
    )
    poise.train(
        fed,
        fed.task,
        solver,
        rounds=2,
        clock=Synchronous("F80"),
        weighting=TimeBased(),
        sampler=Full(),
    )


def test_a_run_ends_when_nobody_answers_any_more() -> None:
    fed = poise.quadratics(OPTIMA)
    trace = Trace([(i, float(k), 0.5) for i in range(4) for k in range(i + 1)])
    run = poise.train(
        fed, fed.task, SGD(lr=0.1, steps=1), clock=Asynchronous(trace), rounds=500
    )
    assert run.rounds == 1 + 2 + 3 + 4
    assert run.times[-1] == 3.5
