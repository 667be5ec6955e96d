"""Timelines by hand, the laws of every timeline, and the closed forms of [Fraboni 2023, §4.4]."""

from __future__ import annotations

from math import ceil, lcm
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poise.clocks import (
    Asynchronous,
    Buffered,
    Exponential,
    FixedWindow,
    Synchronous,
    Trace,
)
from poise.core.durations import SAME, scenario
from poise.core.errors import PoiseError
from poise.core.timeline import shares
from poise.core.types import Assignment, InFlight, Setting

TIMES = st.lists(st.integers(1, 12).map(lambda k: k / 4), min_size=1, max_size=6)


def flown(clock: Any, tau: Any, **end: Any) -> list[tuple[float, list[int], list[int]]]:
    return [
        (round(s.time, 9), s.clients.tolist(), s.versions.tolist())
        for s in clock.timeline(tau, **end)
    ]


def test_asynchronous_with_two_clients_by_hand() -> None:
    """[Fraboni 2023, Fig. 4.1]: client 0 needs 2, client 1 needs 1; at time 2 and 4 both arrive,
    the lower number first."""
    assert flown(Asynchronous(), [2.0, 1.0], time=4.0) == [
        (1.0, [1], [0]),
        (2.0, [0], [0]),
        (2.0, [1], [1]),
        (3.0, [1], [3]),
        (4.0, [0], [2]),
        (4.0, [1], [4]),
    ]


def test_asynchronous_with_three_clients_by_hand() -> None:
    assert flown(Asynchronous(), [5.0, 3.0, 2.0], time=6.0) == [
        (2.0, [2], [0]),
        (3.0, [1], [0]),
        (4.0, [2], [1]),
        (5.0, [0], [0]),
        (6.0, [1], [2]),
        (6.0, [2], [3]),
    ]


def test_fixed_window_by_hand() -> None:
    """Windows of 1: client 0 (2.5) arrives in every third, client 1 (1.0) in every, client 2 (1.2)
    in every second."""
    assert flown(FixedWindow(1.0), [2.5, 1.0, 1.2], time=6.0) == [
        (1.0, [1], [0]),
        (2.0, [1, 2], [1, 0]),
        (3.0, [0, 1], [0, 2]),
        (4.0, [1, 2], [3, 2]),
        (5.0, [1], [4]),
        (6.0, [0, 1, 2], [3, 5, 4]),
    ]


def test_buffered_by_hand() -> None:
    """Two answers each: 1 and 2 first (time 2); then 1 (3) and 2 (4) again, 0 at 5 with 1 at
    5..."""
    assert flown(Buffered(2), [5.0, 1.0, 2.0], time=6.0) == [
        (2.0, [1, 2], [0, 0]),
        (4.0, [1, 2], [1, 1]),
        (5.0, [0, 1], [0, 2]),
        (6.0, [1, 2], [3, 2]),
    ]


def test_a_window_that_divides_a_time_is_not_one_too_many() -> None:
    """Five windows of 0.2 for a time of 1, not six; also far from zero."""
    steps = list(FixedWindow(0.2).timeline([1.0], aggregations=5000))
    assert [s.index for s in steps if s.assignments] == list(range(4, 5000, 5))
    assert FixedWindow(0.2).unbiased_weights([1.0], np.array([1.0])).tolist() == [5.0]
    assert flown(FixedWindow(0.5), [0.5, 1.0], time=1.0) == [
        (0.5, [0], [0]),
        (1.0, [0, 1], [1, 0]),
    ]


def test_empty_windows_are_aggregations() -> None:
    steps = list(FixedWindow(0.25).timeline([1.0], time=1.0))
    assert [len(s.assignments) for s in steps] == [0, 0, 0, 1]


@pytest.mark.parametrize("deadline", [1.0, None])
def test_every_client_of_a_round_is_in_time_or_late(deadline: float | None) -> None:
    finishes = [0.5, 1.0, 1.0 * (1 + SAME), 1.1, np.inf]
    started = [Assignment(finish, i, 0) for i, finish in enumerate(finishes)]
    step, _ = Synchronous(deadline=deadline).advance(InFlight(), started, index=0)
    in_time = [a.client for a in step.assignments]
    late = [a.client for a in step.late]
    assert in_time + late == [0, 1, 2, 3, 4]
    assert len(late) == (0 if deadline is None else 2)


def test_equal_times_are_taken_by_client_number_even_after_many_additions() -> None:
    """0.1 summed ten times is not quite 1.0: it still arrives together with the client that needs
    1.0."""
    steps = list(Asynchronous().timeline([1.0, 0.1], time=50.0))
    for k in range(0, len(steps), 11):
        assert [s.clients.tolist() for s in steps[k + 9 : k + 11]] == [[0], [1]], k
    assert flown(Buffered(1), [1.0, 1.0, 1.0], aggregations=3) == [
        (1.0, [i], [0]) for i in range(3)
    ]


@settings(max_examples=60)
@given(
    TIMES,
    st.sampled_from(["async", "window", "buffer"]),
    st.integers(1, 6),
    st.booleans(),
)
def test_every_timeline_keeps_the_laws(
    tau: list[float], kind: str, c: int, random: bool
) -> None:
    clock: Any = {
        "async": Asynchronous(),
        "window": FixedWindow(0.7),
        "buffer": Buffered(min(c, len(tau))),
    }[kind]
    durations: Any = Exponential(tau) if random else tau
    steps = list(clock.timeline(durations, time=12.0, seed=c))
    began, before = dict.fromkeys(range(len(tau)), 0), 0.0
    assert [s.index for s in steps] == list(range(len(steps)))
    for step in steps:
        assert before <= step.time <= 12.0 * (1 + 1e-9)
        assert (step.versions <= step.index).all()
        assert len(set(step.clients.tolist())) == len(step.clients)
        for client, version in zip(
            step.clients.tolist(), step.versions.tolist(), strict=True
        ):
            assert (
                version == began[client]
            )  # it worked on what it was given last: never in flight twice
            began[client] = step.index + 1
        before = step.time


@given(TIMES)
def test_one_window_or_one_buffer_for_all_is_synchronous_for_equal_times(
    tau: list[float],
) -> None:
    equal = [tau[0]] * len(tau)
    wanted = flown(Synchronous(), equal, aggregations=5)
    assert flown(Buffered(len(tau)), equal, aggregations=5) == wanted
    assert flown(FixedWindow(tau[0]), equal, aggregations=5) == wanted


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_numbers_of_aggregations_windows_and_staleness(tau: list[int]) -> None:
    """[Fraboni 2023, §4.4]: aggregations in time T, the period W, and the largest staleness."""
    nu, n = lcm(*tau), len(tau)
    period = sum(nu // t for t in tau)
    steps = list(Asynchronous().timeline([float(t) for t in tau], time=3 * nu))
    assert len(steps) == 3 * period  # sum_i T/tau_i
    who = [int(s.clients[0]) for s in steps]
    assert who[:period] == who[period : 2 * period] == who[2 * period :]
    stale = max(int(s.index - s.versions[0]) for s in steps)
    assert stale <= n * max(tau) / min(tau) + n
    for dt in (0.5, 1.0, 2.0):
        lasts = [ceil(t / dt) for t in tau]
        window = lcm(*lasts)
        fixed = list(
            FixedWindow(dt).timeline([float(t) for t in tau], aggregations=2 * window)
        )
        assert fixed[-1].time == pytest.approx(
            2 * window * dt
        )  # T/dt aggregations in time T
        arrivals = [s.clients.tolist() for s in fixed]
        assert arrivals[:window] == arrivals[window:]
        assert max(int(s.index - v) for s in fixed for v in s.versions) < max(lasts)


@pytest.mark.parametrize(
    "clock",
    [
        Asynchronous(),
        pytest.param(FixedWindow(0.3), marks=pytest.mark.thorough),
        FixedWindow(0.5),
        pytest.param(Buffered(1), marks=pytest.mark.thorough),
        Buffered(3),
        pytest.param(Buffered(5), marks=pytest.mark.thorough),
        pytest.param(Synchronous(), marks=pytest.mark.thorough),
    ],
)
def test_unbiased_weights_are_unbiased_in_the_long_run(clock: Any) -> None:
    """Count(i) d_i / aggregations = p_i over whole periods of the timeline."""
    tau, p = scenario("F80", 5), np.array([0.1, 0.3, 0.2, 0.15, 0.25])
    d = clock.unbiased_weights(tau, p)
    counts, steps = np.zeros(5), list(clock.timeline(tau, aggregations=30_000))
    for s in steps:
        counts[s.clients] += 1
    assert np.allclose(d * counts / len(steps), p, rtol=2e-3)


def test_closed_forms_by_hand() -> None:
    p = np.array([0.5, 0.5])
    assert Asynchronous().unbiased_weights([1.0, 0.5], p).tolist() == [
        1.5,
        0.75,
    ]  # [Fraboni 2023, Ex. 4.1]: sum 1/tau = 3
    assert FixedWindow(0.5).unbiased_weights([1.0, 0.4], p).tolist() == [1.0, 0.5]
    assert Buffered(1).unbiased_weights([1.0, 0.5], p) == pytest.approx([1.5, 0.75])
    assert shares(Buffered(2, [5.0, 1.0, 2.0]), 3).sum() == pytest.approx(2.0)
    for clock, one in (
        (Asynchronous(), 2 * p),
        (FixedWindow(1.0), p),
        (Buffered(2), np.full(2, 0.5)),
        (Synchronous(), p),
    ):
        assert np.array_equal(clock.identical_weights(p, 2), one)


def test_exponential_times_have_their_mean_and_forget() -> None:
    """5 standard errors; the seed is fixed. The windows that they last are geometric."""
    times, count = Exponential([0.5, 2.0]).bind(2), 20_000
    drawn = np.array([times.of(np.arange(2), n, 7, 0.0) for n in range(count)])
    assert (
        np.abs(drawn.mean(axis=0) - [0.5, 2.0])
        <= 5 * np.array([0.5, 2.0]) / np.sqrt(count)
    ).all()
    last = np.ceil(drawn / 0.8)
    error = 5 * last.std(axis=0) / np.sqrt(count)
    assert (np.abs(last.mean(axis=0) - times.windows(0.8, 2)) <= error).all()
    assert np.array_equal(drawn[3], times.of(np.arange(2), 3, 7, 99.0))
    assert not np.array_equal(drawn[3], times.of(np.arange(2), 3, 8, 0.0))


def test_random_times_are_balanced_in_the_mean() -> None:
    tau, p = np.array([1.0, 0.5, 0.2]), np.full(3, 1 / 3)
    for clock in (
        Asynchronous(Exponential(tau)),
        FixedWindow(0.4, Exponential(tau)),
        Buffered(2, Exponential(tau)),
    ):
        d, counts, count = clock.unbiased_weights(None, p), np.zeros(3), 20_000
        for s in clock.timeline(aggregations=count, seed=3):
            counts[s.clients] += 1
        assert np.allclose(d * counts / count, p, rtol=0.04), clock


def test_a_trace_says_who_is_there_when() -> None:
    trace = Trace([(0, 0, 1), (0, 4, 1), (1, 0, 2), (1, 2, 2), (1, 6, 1)])
    assert flown(Asynchronous(trace), None, clients=2, aggregations=9) == [
        (1.0, [0], [0]),
        (2.0, [1], [0]),
        (4.0, [1], [2]),
        (5.0, [0], [1]),  # away from 1 to 4
        (7.0, [1], [3]),
    ]
    assert flown(Synchronous(trace), None, clients=2, aggregations=9) == [
        (2.0, [0, 1], [0, 0]),
        (5.0, [0, 1], [1, 1]),
        (7.0, [1], [2]),
    ]  # then nobody answers any more


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("client,begin,duration\n0,0,1\n", "first line"),
        ("client,start,duration\n0,zero,1\n", "zero"),
        ("client,start,duration\n0,0\n", "line 2 has 2 numbers"),
        ("client,start,duration\n0,0,-1\n", "duration -1"),
        ("client,start,duration\n0.5,0,1\n", "client 0.5"),
        ("client,start,duration\n0,0,1\n", "client 1 has no entry"),
        (
            "client,start,duration\n0,0,1\n1,0,1\n9,0,1\n",
            "client 9, but only 2 clients",
        ),
        ("client,start,duration\n", "no entry"),
    ],
)
def test_a_bad_trace_file_is_named(text: str, what: str, tmp_path: Any) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(PoiseError, match=what):
        Asynchronous(Trace(str(path))).fit(
            Setting(2, np.ones(2, dtype=int), np.full(2, 0.5))
        )


def test_a_missing_trace_file_is_named() -> None:
    with pytest.raises(PoiseError, match=r"nowhere\.csv"):
        Asynchronous(Trace("nowhere.csv")).fit(
            Setting(1, np.ones(1, dtype=int), np.ones(1))
        )


@pytest.mark.parametrize(
    "make",
    [lambda: FixedWindow(0.0), lambda: Buffered(0), lambda: FixedWindow(float("inf"))],
)
def test_impossible_clocks_are_refused(make: Any) -> None:
    with pytest.raises(PoiseError):
        make()
    with pytest.raises(PoiseError, match="c = 3"):
        Buffered(3).fit(Setting(2, np.ones(2, dtype=int), np.full(2, 0.5)))
