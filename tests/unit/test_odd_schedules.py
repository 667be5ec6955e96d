"""Schedules and weights at the edge: nobody there, nobody alike, drawn twice, another unit of
time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poise
from poise.clocks import (
    Asynchronous,
    Buffered,
    Exponential,
    Replay,
    Synchronous,
    Trace,
    save_schedule,
)
from poise.core.errors import PoiseError
from poise.samplers import MD, PowerOfChoice, Uniform
from poise.solvers import SGD, Perturbed
from poise.weightings import Adjacency, Discount, Identical, Proportional, TimeBased

SOLVER = SGD(lr=0.05, steps=2)
ENTRIES = [(i, 0.0, 1.0) for i in range(10)] + [
    (0, float(k), 1.0) for k in range(1, 20)
]


def quad() -> Any:
    return poise.quadratics(np.random.default_rng(0).normal(size=(10, 3)))


def train(**options: Any) -> Any:
    fed = quad()
    return poise.train(fed, fed.task, **{"solver": SOLVER, "rounds": 20, **options})


def test_identical_weights_do_not_depend_on_the_sampler() -> None:
    for sampler in (None, Uniform(2), MD(2)):
        run = train(clock=Asynchronous("F80"), weighting=Identical(), sampler=sampler)
        assert run.weights.max() == pytest.approx(1.0)


@pytest.mark.parametrize("sampler", [PowerOfChoice(1, 10), Uniform(1), MD(2)])
@pytest.mark.parametrize("clock", [Synchronous, Asynchronous])
def test_time_does_not_stand_still_when_those_drawn_are_away(
    sampler: Any, clock: Any
) -> None:
    run = train(clock=clock(Trace(ENTRIES)), sampler=sampler, rounds=None, time=10.0)
    empty = run.weights.sum(axis=1) == 0
    assert (np.diff(run.times)[empty[1:]] > 0).all()
    assert run.times[-1] <= 10


@pytest.mark.parametrize("seed", range(5))
def test_runs_with_samplers_can_be_replayed(seed: int, tmp_path: Path) -> None:
    for sampler, clock in (
        (Uniform(4), Buffered(2, "F80")),
        (MD(5), Buffered(2, Exponential("F80"))),
    ):
        first = train(sampler=sampler, clock=clock, seed=seed)
        save_schedule(first.schedule, tmp_path / "r.csv")
        again = train(sampler=sampler, clock=Replay(str(tmp_path / "r.csv")), seed=seed)
        assert again.model.tobytes() == first.model.tobytes()


def test_a_client_drawn_twice_has_one_estimated_weight() -> None:
    sums = [
        train(
            sampler=MD(20, independent_draws=twice), weighting=TimeBased("estimated")
        ).weights
        for twice in (False, True)
    ]
    assert np.allclose(sums[0], sums[1])


def test_a_trace_has_no_unbiased_weights_in_buffers_either() -> None:
    with pytest.raises(PoiseError, match="has no mean times"):
        Buffered(2).unbiased_weights(
            Trace([(0, 0, 1), (1, 0, 1)]), np.array([0.5, 0.5])
        )


def test_unbiased_weights_do_not_depend_on_the_unit_of_time() -> None:
    p = np.array([0.5, 0.3, 0.2])
    one = Buffered(2).unbiased_weights(Exponential([1.0, 2.0, 3.0]), p)
    for unit in (1e-6, 1e6):
        assert np.allclose(
            Buffered(2).unbiased_weights(Exponential([unit, 2 * unit, 3 * unit]), p),
            one,
        )


def test_a_client_joined_to_nobody_is_named() -> None:
    fed = poise.quadratics([[1.0], [1.0], [-1.0]])
    for parts in (
        {"solver": Perturbed(0.5, lr=0.1, steps=1)},
        {"solver": SOLVER, "weighting": Adjacency()},
    ):
        with pytest.raises(
            PoiseError,
            match=r"client 2 has no neighbour .*: it is the opposite of all other",
        ):
            poise.train(fed, fed.task, rounds=1, **parts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "entries",
    [[(float("nan"), 0, 1)], [(float("inf"), 0, 1)], [1, 2, 3], [(0, "x", 1)]],
)
def test_bad_rows_of_a_trace_are_refused(entries: Any) -> None:
    with pytest.raises(PoiseError, match="row 1"):
        Trace(entries)


def test_calls_without_a_run() -> None:
    assert Discount(Proportional()).coefficients(
        np.ones(2), sizes=np.ones(2)
    ).tolist() == [1, 1]
    steps = list(Asynchronous().timeline(Trace([(0, 0, 1), (1, 0, 2)]), time=3.0))
    assert [s.clients.tolist() for s in steps] == [[0], [1]]
    with pytest.raises(PoiseError, match="choose d <= 1"):
        PowerOfChoice(1, 2).statistics(np.array([1.0]))
