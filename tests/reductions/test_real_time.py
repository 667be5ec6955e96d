"""A clock that knows only the arrivals so far takes the same steps as one that knows all times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import poise
from poise.backends.local import Local, LocalWorkers
from poise.clocks import Asynchronous, Buffered, FixedWindow, Synchronous
from poise.core.arrivals import Arrivals
from poise.core.parts import part
from poise.core.protocols import WorkOrder
from poise.core.types import Assignment, Cohort, InFlight
from poise.engine.realtime import Key, RealTime
from poise.engine.state import State

TIMES = [1.0, 0.3, 0.45, 2.2]


@part("backend", "tests-by-the-hour")
class ByTheHour:
    """A backend whose clients take these times of a clock that stands still unless somebody
    waits."""

    crash: int = -1  # after so many pieces of work have been handed out
    measuring: float = 0.0  # how long the server takes to measure
    device = "cpu"

    def open(self, *given: Any) -> Hours:
        return Hours(Local(workers=1).open(*given), self.crash, self.measuring)


@dataclass
class Hours:
    here: LocalWorkers
    crash: int
    measuring: float
    now: float = 0.0
    out: dict[Key, float] = field(default_factory=dict)
    handed: list[tuple[Key, int]] = field(default_factory=list)
    log: list[tuple[str, int]] = field(default_factory=list)

    real_time = True
    real_nodes = False

    def hand_out(self, order: WorkOrder, at_work: int) -> None:
        for f in order.assignments:
            assert f.version in order.models
            if len(self.handed) == self.crash:
                raise KeyboardInterrupt
            self.handed.append((f.key, at_work))
            self.out[f.key] = self.now + TIMES[f.client]

    def answered(self, wait: float) -> list[Key]:
        self.now = max(self.now, min([self.now + wait, *self.out.values()]))
        came = [
            key for key, finish in self.out.items() if finish <= self.now * (1 + 1e-12)
        ]
        for key in came:
            del self.out[key]
        return came

    def call_off(self, assignments: Iterable[Assignment]) -> None:
        for f in assignments:
            self.out.pop(f.key, None)

    def seconds(self) -> float:
        return 64.0 + self.now

    def work(self, order: WorkOrder, *more: Any) -> Arrivals:
        assert not {f.key for f in order.assignments} & self.out.keys(), (
            "work that has not been answered was asked for"
        )
        return self.here.work(order, *more)

    def map_workers(self, function: Any, items: Any) -> list[Any]:
        return self.here.map_workers(function, items)

    def measure(self, *given: Any) -> dict[str, Any]:
        self.now += self.measuring
        return self.here.measure(*given)

    def close(self) -> None:
        self.here.close()


def train(clock: Any, **more: Any) -> Any:
    fed = poise.federation("digits", "dirichlet", 4, alpha=0.5, seed=1)
    solver = poise.solvers.SGD(lr=0.1, steps=3, batch_size=8)
    return poise.train(
        fed,
        poise.task("logistic"),
        solver,
        clock=clock,
        **{"rounds": 7, "seed": 3, **more},
    )


CLOCKS = [
    Synchronous(),
    Synchronous(deadline=1.5),
    Synchronous(enough=2),
    Synchronous(deadline=0.35, enough=3),
    Asynchronous(),
    Buffered(2),
    Buffered(3),
    FixedWindow(0.5),
    FixedWindow(0.05),
]


@pytest.mark.parametrize("clock", CLOCKS, ids=str)
def test_real_time_takes_the_steps_of_simulated_time(clock: Any) -> None:
    known = train(replace(clock, durations=TIMES))
    lived = train(clock, backend=ByTheHour())
    assert [(s.clients.tolist(), s.versions.tolist()) for s in lived.schedule] == [
        (s.clients.tolist(), s.versions.tolist()) for s in known.schedule
    ]
    assert np.allclose(lived.times, known.times, rtol=1e-9)
    assert lived.model.tolist() == known.model.tolist()
    assert lived.refusals == known.refusals


NOBODY_AT_WORK = [
    Synchronous(),
    Synchronous(deadline=1.5),
    Synchronous(enough=2),
    FixedWindow(2.5),
]


@pytest.mark.parametrize("clock", NOBODY_AT_WORK, ids=str)
def test_measuring_takes_no_time(clock: Any) -> None:
    """It lasts longer than a deadline or a window here: counted, every later round would end before
    it began."""
    known = train(replace(clock, durations=TIMES))
    lived = train(clock, backend=ByTheHour(measuring=7.0))
    assert [s.clients.tolist() for s in lived.schedule] == [
        s.clients.tolist() for s in known.schedule
    ]
    assert np.allclose(lived.times, known.times, rtol=1e-9)
    assert lived.model.tolist() == known.model.tolist()


def test_who_is_done_while_the_server_measures_is_there_when_it_looks() -> None:
    run = train(FixedWindow(0.5), rounds=3, backend=ByTheHour(measuring=7.0))
    assert [s.clients.tolist() for s in run.schedule] == [[1, 2], [0, 1, 2, 3], [1, 2]]
    assert [s.versions.tolist() for s in run.schedule] == [[0, 0], [0, 1, 1, 0], [2, 2]]
    assert run.times.tolist() == [0.5, 1.0, 1.5]


def test_what_was_seen_after_a_step_is_not_waited_for_again() -> None:
    """A large answer takes 12 seconds to be taken in, and the first window of 5 ends meanwhile."""
    looks: list[float] = []

    def answered(wait: float) -> list[Key]:
        looks.append(wait if looks else 12.0)
        return [] if len(looks) > 1 else [(0, 0, 0)]

    nothing = lambda *given, **more: None
    carrier = SimpleNamespace(
        answered=answered,
        seconds=lambda: sum(looks),
        hand_out=nothing,
        call_off=nothing,
    )
    pace = RealTime(FixedWindow(5.0), carrier)
    assignments = pace.launch(Cohort(np.array([0]), np.ones(1)), InFlight(), 0)
    step, in_flight = pace.next_step(assignments, State(0, torch.zeros(1), {}))
    assert (step.time, step.assignments) == (5.0, ())
    step, in_flight = pace.next_step(
        (), State(1, torch.zeros(1), {}, in_flight=in_flight)
    )
    assert (step.time, [f.client for f in step.assignments]) == (10.0, [0])


def test_a_server_that_waits_polls_every_half_second() -> None:
    """Otherwise a request to stop would go unnoticed for longer."""
    waits: list[float] = []
    nothing = lambda *given, **more: None
    carrier = SimpleNamespace(
        answered=lambda wait: waits.append(wait) or [],
        seconds=lambda: sum(waits),
        hand_out=nothing,
        call_off=nothing,
    )
    pace = RealTime(Synchronous(), carrier, stop=lambda: sum(waits) >= 2)
    assignments = pace.launch(Cohort(np.array([0]), np.ones(1)), InFlight(), 0)
    step, _ = pace.next_step(assignments, State(0, torch.zeros(1), {}))
    assert step.time == np.inf
    assert waits == [0.0, 0.5, 0.5, 0.5, 0.5]


def test_a_cohort_without_a_weight_for_every_client_starts_nothing() -> None:
    cohort = Cohort(np.array([0, 1]), np.ones(1))
    with pytest.raises(ValueError, match="shorter"):
        RealTime(Synchronous(), SimpleNamespace()).launch(cohort, InFlight(), 0)


@pytest.mark.parametrize(
    "clock",
    [Asynchronous(), Buffered(2), FixedWindow(0.5), Synchronous(enough=2)],
    ids=str,
)
@pytest.mark.parametrize("crash", [4, 5, 7])
def test_a_run_that_died_hands_out_what_was_under_way_again(
    clock: Any, crash: int, tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(clock, backend=ByTheHour(crash), out=tmp_path / "run")
    before = poise.open_run(tmp_path / "run")
    done = poise.resume(tmp_path / "run", backend=ByTheHour())
    assert done.rounds == 7
    assert done.times[: before.rounds].tolist() == before.times.tolist()
    assert (np.diff(done.times) >= 0).all()
    for contribution in done.contributions:
        assert contribution["version"] <= contribution["round"]
    # what the ledger says happened is what gave the model
    poise.clocks.save_schedule(done.schedule, tmp_path / "steps.csv")
    again = (
        train(poise.clocks.Replay(str(tmp_path / "steps.csv")))
        if not clock.waits
        else None
    )
    assert again is None or again.model.tolist() == done.model.tolist()


def test_a_budget_of_seconds_ends_a_run_that_nobody_answers() -> None:
    run = train(FixedWindow(0.4), rounds=None, time=1.0, backend=ByTheHour())
    assert run.times.tolist() == pytest.approx([0.4, 0.8])
    run = train(Synchronous(), rounds=None, time=2.0, backend=ByTheHour())
    assert run.rounds == 0, "the slowest needs 2.2"


def test_who_is_late_is_named_and_the_round_goes_on() -> None:
    run = train(Synchronous(deadline=1.0), rounds=2, backend=ByTheHour())
    assert run.refusals == [(0, 3, "nothing in time"), (1, 3, "nothing in time")]
    assert [s.clients.tolist() for s in run.schedule] == [[0, 1, 2], [0, 1, 2]]


@pytest.mark.parametrize(
    "clock", [Synchronous(deadline=1.5), Synchronous(enough=2)], ids=str
)
def test_weights_make_up_for_who_is_left_out(clock: Any) -> None:
    law = poise.clocks.Exponential([1.0, 0.5, 2.0])
    p = np.array([0.5, 0.3, 0.2])
    weights = replace(clock, durations=law).unbiased_weights(None, p)
    if (
        clock.deadline is not None
    ):  # P(T_i <= 1.5) = 1 - exp(-1.5/tau_i); 1000 arrivals or more of each: 5 sigma
        share = 1 - np.exp(-1.5 / np.array([1.0, 0.5, 2.0]))
    # not the slowest of three exponentials: the last is i with a chance from inclusion and
    # exclusion
    else:
        rate = 1 / np.array([1.0, 0.5, 2.0])
        share = np.array([1 - _last(rate, i) for i in range(3)])
    sigma = share * np.sqrt((1 - share) / share / 1000)
    assert (np.abs(p / weights - share) <= 5 * sigma).all()


def _last(rate: Any, i: int) -> float:
    """P(T_i is the largest of three exponential times)."""
    j, k = (n for n in range(3) if n != i)
    a, b, c = rate[i], rate[j], rate[k]
    return float(1 - a / (a + b) - a / (a + c) + a / (a + b + c))


def test_a_client_that_is_never_in_time_has_no_weight() -> None:
    with pytest.raises(poise.PoiseError, match="client 1 never arrives"):
        Synchronous(deadline=1.0, durations=[0.5, 2.0]).unbiased_weights(
            None, np.array([0.5, 0.5])
        )
