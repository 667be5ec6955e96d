"""Small closed forms of the parts, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from poise.channels import TopK
from poise.clocks import Asynchronous, Buffered, Exponential, Trace
from poise.core.types import Assignment, InFlight
from poise.privacy.budget import Budget
from poise.privacy.gaussian import privacy_curve, sensitivity_budget
from poise.samplers import PowerOfChoice
from poise.solvers import SGD


def test_scenarios_and_files_name_no_number_of_clients() -> None:
    assert len(Exponential("F80")) == 0
    assert len(Exponential((1.0, 2.0))) == 2
    assert len(Trace("trace.csv")) == 0
    assert (
        Trace("trace.csv").bind(None).last == 0.0
    )  # the file is read when a run is composed


def test_windows_that_an_exponential_time_takes() -> None:
    # a time with mean 1/log(2) ends within a window of 1 with probability 1/2: 2 windows on average
    times = Exponential((1 / np.log(2), 1 / np.log(4 / 3))).bind(2)
    assert times.windows(1.0, 2) == pytest.approx([2.0, 4.0], rel=1e-12)


def test_weights_of_the_asynchronous_clock_that_ignore_times() -> None:
    weights = Asynchronous().identical_weights(np.array([0.5, 0.25]), clients=4)
    assert weights.tolist() == [2.0, 1.0]


def test_a_buffer_waits_for_the_last_of_its_answers_and_time_does_not_go_back() -> None:
    assignments = tuple(
        Assignment(finish, client, 0) for client, finish in enumerate([3.0, 1.0, 2.0])
    )
    step, in_flight = Buffered(2).advance(InFlight(0.0), assignments, index=0)
    assert (step.time, [f.client for f in step.assignments]) == (2.0, [1, 2])
    assert (in_flight.now, [f.client for f in in_flight.assignments]) == (2.0, [0])
    late, _ = Buffered(2).advance(InFlight(5.0), assignments, index=0)
    assert late.time == 5.0


def test_the_largest_losses_of_all_candidates_leave_nothing_to_chance() -> None:
    # d = 3 of 3 clients: the two with the largest losses are always chosen, with weight 1/2 each
    sampler = PowerOfChoice(2, d=3)
    told = sampler.statistics(
        np.full(3, 1 / 3), losses=np.array([1.0, 3.0, 2.0]), draws=50
    )
    assert told.mean.tolist() == [0.0, 0.5, 0.5]
    assert told.variance == pytest.approx([0.0, 0.0, 0.0], abs=1e-15)
    assert told.estimated


def test_statistics_that_are_estimated_use_seed_0_unless_told_otherwise() -> None:
    sampler, p = PowerOfChoice(1, d=1), np.array([0.5, 0.5])
    default, zero, one = (
        sampler.statistics(p, draws=20, **seed).mean.tolist()
        for seed in ({}, {"seed": 0}, {"seed": 1})
    )
    assert default == zero != one


@pytest.mark.parametrize(
    ("dtype", "entries", "sparse"),
    [
        (torch.float32, 4, True),  # 4 * (4 + 4) = 32 bytes; all ten values are 40
        (torch.float32, 5, False),  # 5 * (4 + 4) = 40
        (torch.float64, 6, True),  # 6 * (4 + 8) = 72; all ten values are 80
        (torch.float64, 7, False),  # 7 * (4 + 8) = 84
    ],
)
def test_positions_are_sent_only_if_shorter(
    dtype: torch.dtype, entries: int, sparse: bool
) -> None:
    update = torch.arange(1, 11, dtype=dtype)[None]
    channel = TopK(entries / 10, error_feedback=False)
    payload = channel.encode(update, {}).payload
    assert ("index" in payload) == sparse
    kept = [0.0] * (10 - entries) + list(range(11 - entries, 11))
    assert channel.decode(payload, 10).tolist() == [kept]


def test_how_far_a_local_step_contracts() -> None:
    # 1 - eta (lambda + mu) = 1 - 0.1 * (0.2 + 0.3)
    solver = SGD(0.1, steps=1, weight_decay=0.2)
    assert Budget(strong_convexity=0.3).contraction(solver) == pytest.approx(
        0.95, rel=1e-12
    )
    assert Budget().contraction(solver) == 1.0


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 5.0, 10.0])
@pytest.mark.parametrize("distance", [1.0, 8.0])
def test_a_distance_at_the_end_of_the_bracket_is_returned_exactly(
    distance: float, epsilon: float
) -> None:
    # the search doubles its upper end from 1, so it meets these distances without rounding
    delta = privacy_curve(distance, epsilon)
    assert sensitivity_budget(1.0, epsilon, delta) == distance
