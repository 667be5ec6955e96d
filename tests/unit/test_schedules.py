"""Schedules in runs: saved and replayed, lazily batched, resumed in flight, and within their
memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import poise
from faults.support import run_into, same
from parameters import thorough_except
from poise import testing
from poise.backends import Local
from poise.clocks import (
    Asynchronous,
    Buffered,
    Exponential,
    FixedWindow,
    Replay,
    load_schedule,
    save_schedule,
)
from poise.core.arrivals import UPDATE, Arrivals
from poise.core.errors import PoiseError
from poise.core.protocols import WorkOrder
from poise.engine.executor import LazyExecutor
from poise.samplers import Uniform
from poise.solvers import SGD
from poise.tasks import Task
from poise.training import resume

TAU = [1.0, 0.8, 0.55, 0.3, 0.2]
CLOCKS = [
    Asynchronous(TAU),
    FixedWindow(0.25, TAU),
    Buffered(2, TAU),
    Asynchronous(Exponential(TAU)),
]


def federation() -> Any:
    return poise.federation("synthetic", clients=5, seed=1)


def train(clock: Any, **options: Any) -> Any:
    chosen = {
        "task": poise.task("mlp", hidden=8),
        "solver": SGD(lr=0.1, steps=3, batch_size=4),
        **options,
    }
    return poise.train(
        federation(), chosen.pop("task"), clock=clock, rounds=25, seed=2, **chosen
    )


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_saved_schedule_replays_the_run(clock: Any, tmp_path: Path) -> None:
    first = train(clock)
    path = tmp_path / "schedule.csv"
    save_schedule(first.schedule, path)
    assert load_schedule(path) == first.schedule
    again = train(Replay(str(path)))
    assert np.array_equal(again.times, first.times)
    assert np.array_equal(again.weights, first.weights)
    assert again.model.tobytes() == first.model.tobytes()
    longer = poise.train(
        federation(),
        poise.task("logistic"),
        SGD(lr=0.1, steps=1),
        clock=Replay(str(path)),
        rounds=99,
    )
    assert longer.rounds == 25  # it ends where the schedule ends


def test_a_timeline_can_be_saved_and_played(tmp_path: Path) -> None:
    path = tmp_path / "planned.csv"
    save_schedule(Buffered(2).timeline(TAU, time=3.0), path)
    testing.check_part(Replay(str(path)))
    run = train(Replay(str(path)))
    assert run.rounds == min(25, len(load_schedule(path)))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("time,client\n", "not a schedule"),
        ("index,time,client,version\n0,1.0,0,zero\n", "line 2"),
        ("index,time,client,version\n0,1.0,0,3\n", "version 3"),
        ("index,time,client,version\n1,1.0,0,0\n", "steps are missing"),
        ("index,time,client,version\n0,1.0,7,0\n", "client 7"),
        (
            "index,time,client,version\n0,1.0,0,0\n1,1.5,0,0\n",
            "not at work on version 0",
        ),
    ],
)
def test_a_bad_schedule_is_named(text: str, what: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(PoiseError, match=what):
        train(Replay(str(path)))


def test_a_deleted_schedule_is_not_read_from_the_cache(tmp_path: Path) -> None:
    """Not even if the file was dated one nanosecond after the epoch, next to "no file"."""
    path = tmp_path / "deleted.csv"
    save_schedule(Asynchronous().timeline(TAU, time=1.0), path)
    os.utime(path, ns=(1, 1))
    if path.stat().st_mtime_ns != 1:
        pytest.skip("this file system stores no nanoseconds")
    clock = Replay(str(path))
    assert list(clock.timeline())
    path.unlink()
    with pytest.raises(PoiseError, match="No such file"):
        clock.timeline()


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("path", ["rows", None])
def test_lazy_batching_changes_nothing(
    clock: Any, path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that is in flight at once, or each piece by itself when it arrives: the same bits."""
    task = Task("mlp", {"hidden": 8}, path=path)
    batched = train(clock, task=task)
    lazily = LazyExecutor.collect

    def one_by_one(self: LazyExecutor, arrived: Any, state: Any) -> Any:
        for assignment in arrived:
            if assignment.key not in self._done:
                order = WorkOrder(
                    [assignment], state.models, self.reports, state.algorithm_state
                )
                self._done[assignment.key] = (self.backend.work(order), 0)
        return lazily(self, arrived, state)

    monkeypatch.setattr(LazyExecutor, "collect", one_by_one)
    single = train(clock, task=task)
    assert single.digest == batched.digest
    assert single.model.tobytes() == batched.model.tobytes()


FILE = """
[data]
source = "synthetic"
clients = 5
[task]
model = "logistic"
[solver]
name = "{solver}"
lr = 0.1
steps = 3
batch_size = 4
[sampler]
{sampler}
[clock]
{clock}
[weighting]
name = "{weighting}"
[run]
rounds = 16
"""
RUNS = {
    "asynchronous": (
        "sgd",
        'name = "full"',
        'name = "asynchronous"\ndurations = "F80"',
        "time-based",
    ),
    "window": (
        "scaffold",
        'name = "full"',
        'name = "fixed-window"\ndt = 0.3\ndurations = "F80"',
        "identical",
    ),
    "buffer": (
        "sgd",
        'name = "uniform"\nm = 3',
        'name = "buffered"\nc = 2\ndurations = "F80"',
        "proportional",
    ),
    "random": (
        "sgd",
        'name = "full"',
        (
            'name = "asynchronous"\ndurations = { slot = "durations", name = "exponential", tau = '
            '"F50" }'
        ),
        "time-based",
    ),
}


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("after", thorough_except([7], [1, 7]))
def test_a_run_resumed_in_flight_ends_the_same(
    name: str, after: int, tmp_path: Path
) -> None:
    solver, sampler, clock, weighting = RUNS[name]
    text = FILE.format(solver=solver, sampler=sampler, clock=clock, weighting=weighting)
    whole, part = (
        run_into(text, tmp_path / "whole"),
        run_into(text, tmp_path / "part", stop_after=after),
    )
    resume(part).close()
    same(part, whole)


def test_workers_do_not_change_an_asynchronous_run() -> None:
    runs = [train(Asynchronous(TAU), backend=Local(workers=w)) for w in (1, 3)]
    assert runs[0].digest == runs[1].digest


def test_a_budget_of_time_is_kept() -> None:
    run = poise.train(
        federation(),
        poise.task("logistic"),
        SGD(lr=0.1, steps=1),
        clock=Asynchronous(TAU),
        time=2.0,
    )
    assert run.times[-1] <= 2.0
    assert run.rounds == sum(int(2.0 / t + 1e-9) for t in TAU)


def test_only_versions_in_flight_and_one_stack_are_kept() -> None:
    """Memory: rows that are done and not yet here, plus the new ones, are never more than the
    clients at work."""
    fed, seen = federation(), []

    class Watched(LazyExecutor):
        def collect(self, *given: Any, **more: Any) -> Any:
            found = super().collect(*given, **more)
            stacks = {
                a.payload[UPDATE].untyped_storage().data_ptr(): a.payload[UPDATE]
                .untyped_storage()
                .nbytes()
                for a, _ in self._done.values()
            }
            here = found.payload[UPDATE].untyped_storage()
            stacks[here.data_ptr()] = here.nbytes()
            seen.append(sum(stacks.values()))
            return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("poise.engine.loop.LazyExecutor", Watched)
        records: list[Any] = []
        poise.train(
            fed,
            poise.task("logistic"),
            SGD(lr=0.1, steps=1),
            clock=Asynchronous(TAU),
            rounds=60,
            callbacks=[records.append],
        )
    row = records[0].bytes_up  # one update
    assert max(seen) <= 6 * row  # five clients at work, and the row that was handed out


def test_a_uniform_sampler_keeps_its_cohort_at_work() -> None:
    records: list[Any] = []
    run = train(Asynchronous(TAU), sampler=Uniform(2), callbacks=[records.append])
    assert all(
        len(r.contributions) == 1 and len(r.in_flight.assignments) == 1 for r in records
    )
    assert (run.weights > 0).sum(axis=0).min() > 0  # everyone gets a turn


def test_a_row_of_a_stack_is_a_copy_that_outlives_it() -> None:
    stack = torch.arange(6.0).reshape(3, 2)
    arrivals = Arrivals({UPDATE: stack}, np.ones(3, dtype=int), np.ones(3, dtype=int))
    row = arrivals.rows(np.array([1]))
    stack.zero_()
    assert row.payload[UPDATE].tolist() == [[2.0, 3.0]]
