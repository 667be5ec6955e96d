"""Durations, timelines by hand, and the values that clocks pass."""

from __future__ import annotations

import numpy as np
import pytest

import poise
from poise.clocks import Synchronous, Trace
from poise.core.durations import as_durations, scenario
from poise.core.errors import InvalidOption
from poise.core.timeline import launch
from poise.core.types import Assignment, Cohort, InFlight
from poise.solvers import SGD


def test_scenarios_run_from_slow_to_fast() -> None:
    assert np.allclose(scenario("F80", 5), [1.0, 0.8, 0.6, 0.4, 0.2])
    assert np.allclose(scenario("F0", 3), 1.0)
    assert scenario("F80", 1).tolist() == [1.0]
    for wrong in ("80", "F100", "F-1", "f80", "F8.0", ""):
        with pytest.raises(InvalidOption, match="F80"):
            scenario(wrong, 3)


def test_durations_are_checked_against_the_number_of_clients() -> None:
    assert as_durations(None, 3).of(np.array([0, 2]), 0, 0, 0.0).tolist() == [1.0, 1.0]
    assert as_durations([1, 2, 3], 3).of(np.array([2, 0]), 5, 9, 0.0).tolist() == [
        3.0,
        1.0,
    ]
    for wrong in (
        [1.0, 2.0],
        [1.0, 2.0, 0.0],
        [1.0, 2.0, float("nan")],
        [1.0, float("inf"), 1.0],
        [[1.0, 2.0, 3.0]],
    ):
        with pytest.raises(InvalidOption):
            as_durations(wrong, 3)  # type: ignore[arg-type]


def test_a_synchronous_timeline_by_hand() -> None:
    steps = list(Synchronous().timeline([1.0, 3.0, 2.0], time=9.5))
    assert [s.time for s in steps] == [3.0, 6.0, 9.0]
    assert [s.index for s in steps] == [0, 1, 2]
    assert all(s.clients.tolist() == [0, 1, 2] for s in steps)
    assert all((s.versions == s.index).all() for s in steps)
    assert [s.time for s in Synchronous("F80").timeline(aggregations=2, clients=3)] == [
        1.0,
        2.0,
    ]


def test_a_step_exactly_at_the_budget_counts() -> None:
    assert len(list(Synchronous().timeline([0.1], time=1.0))) == 10, (
        "ten times 0.1 is 1.0 for a user"
    )


def test_a_timeline_needs_an_end_and_a_number_of_clients() -> None:
    with pytest.raises(InvalidOption, match="end"):
        next(Synchronous().timeline([1.0]))
    with pytest.raises(InvalidOption, match="clients"):
        next(Synchronous().timeline(aggregations=1))


def test_a_round_lasts_as_long_as_its_slowest_client() -> None:
    clock, cohort = (
        Synchronous((5.0, 1.0, 2.0)),
        Cohort(np.array([1, 2]), np.array([0.3, 0.7])),
    )
    started = launch(cohort, clock.times(3), 10.0, 4, 0)
    step, in_flight = clock.advance(InFlight(10.0), started, 4)
    assert (step.time, in_flight) == (12.0, InFlight(12.0))
    assert step.weights.tolist() == [0.3, 0.7]
    assert step.versions.tolist() == [4, 4]
    assert clock.advance(InFlight(10.0), (), 4)[0].time == 10.0


def test_a_client_drawn_twice_has_two_addresses() -> None:
    cohort = Cohort(np.array([3, 1, 3, 3]), np.full(4, 0.25))
    assert cohort.occurrences().tolist() == [0, 0, 1, 2]
    assignments = launch(cohort, as_durations(None, 4), 0.0, 7, 0)
    assert [f.key for f in assignments] == [(7, 3, 0), (7, 1, 0), (7, 3, 1), (7, 3, 2)]
    assert len({f.key for f in assignments}) == 4


def test_flights_sort_by_arrival_then_client() -> None:
    late, early, tie = (
        Assignment(2.0, 0, 0),
        Assignment(1.0, 5, 0),
        Assignment(1.0, 2, 0),
    )
    assert sorted([late, early, tie]) == [tie, early, late]


@pytest.mark.parametrize(("time", "rounds"), [(0.3, 3), (0.2999, 2)])
def test_a_run_takes_the_step_that_rounding_puts_behind_its_budget(
    time: float, rounds: int
) -> None:
    # three rounds of 0.1 end at 0.1 + 0.1 + 0.1 = 0.30000000000000004
    fed = poise.quadratics([[0.0], [1.0]])
    run = poise.train(
        fed, fed.task, SGD(0.1, steps=1), clock=Synchronous([0.1, 0.1]), time=time
    )
    assert run.rounds == rounds


def test_a_trace_by_hand() -> None:
    trace = Trace([(0, 0.0, 2.0), (2, 1.0, 3.0), (1, 0.0, 5.0), (0, 4.0, 1.0)])
    assert len(trace) == 3
    times = trace.bind(3)
    assert times.last == 4.0
    assert times.next(0.0) == 1.0  # client 2 can begin
    assert times.next(4.0) == np.inf
    # client 0 has begun its chance at 0, so it waits for 4; client 2 begins at once
    assert times.of(np.array([0, 2]), version=0, seed=0, now=1.0).tolist() == [4.0, 3.0]
    assert trace.for_clients([2, 0]).entries == (
        (1, 0.0, 2.0),
        (0, 1.0, 3.0),
        (1, 4.0, 1.0),
    )
