"""Samplers in a run: those that look back on earlier rounds, before and after a resume."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import poise
from faults.support import run_into, same
from poise.core.gradients import Gradients
from poise.core.history import History
from poise.core.traits import SamplerTraits, traits_of
from poise.core.types import Setting
from poise.samplers import (
    MD,
    ClusteredBySimilarity,
    ClusteredBySize,
    Optimal,
    PowerOfChoice,
)
from poise.solvers import SGD
from poise.training import resume

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
{sampler}
[run]
rounds = 12
"""
LOOKING_BACK = {
    "similarity": 'name = "clustered-by-similarity"\nm = 3',
    "distance": 'name = "clustered-by-similarity"\nm = 3\nmeasure = "L1"\nindependent_draws = true',
    "ahead": 'name = "clustered-by-similarity"\nm = 3\nahead = true',
    "optimal": 'name = "optimal"\nm = 3',
    "choice": 'name = "power-of-choice"\nm = 3\nd = 6',
}


@pytest.mark.parametrize("name", LOOKING_BACK)
@pytest.mark.parametrize("after", [1, 6])
def test_a_resumed_run_draws_what_it_would_have_drawn(
    name: str, after: int, tmp_path: Path
) -> None:
    text = FILE.format(sampler=LOOKING_BACK[name])
    whole, part = (
        run_into(text, tmp_path / "whole"),
        run_into(text, tmp_path / "part", stop_after=after),
    )
    resume(part).close()
    same(part, whole)


def four_directions(seed: int) -> Any:
    """20 clients whose optima lie in four directions, far from the start and far apart."""
    axes = 100 * np.eye(4)[np.arange(20) % 4]
    return poise.quadratics(axes + np.random.default_rng(seed).normal(size=(20, 4)))


@pytest.mark.parametrize("measure", ["arccos", "L2", "L1"])
@pytest.mark.parametrize("ahead", [False, True])
def test_all_four_directions_are_drawn_once_they_are_known(
    measure: Any, ahead: bool
) -> None:
    fed = four_directions(1)
    sampler = ClusteredBySimilarity(4, measure=measure, ahead=ahead)
    run = poise.train(
        fed, fed.task, SGD(lr=0.02, steps=1), sampler=sampler, rounds=120, seed=3
    )
    drawn = [np.flatnonzero(w) for w in run.weights]
    known = next(
        n for n in range(120) if len(set(np.concatenate(drawn[: n + 1]).tolist())) == 20
    )
    after = drawn[known + 1 + ahead :]
    assert len(after) > 50
    assert all(sorted(c % 4 for c in cohort) == [0, 1, 2, 3] for cohort in after)


def test_updating_rows_is_the_same_as_starting_over() -> None:
    """To the bit, in the order in which clients came, whatever they sent before."""
    rng = np.random.default_rng(0)
    for measure in ("arccos", "L2", "L1"):
        seen, fresh = Gradients(9, measure), Gradients(9, measure)
        last: dict[int, torch.Tensor] = {}
        for _ in range(8):
            clients = rng.choice(9, 3, replace=False).tolist()
            rows = torch.from_numpy(rng.normal(size=(3, 50))).float()
            seen.add(clients, rows)
            seen.refreshed()
            for c, row in zip(clients, rows, strict=True):
                last.pop(c, None)
                last[c] = row
        for c, row in last.items():
            fresh.add([c], row[None])
        assert seen.refreshed().tobytes() == fresh.refreshed().tobytes()
        assert np.array_equal(seen.alike, seen.alike.T)


def test_similarities_by_hand() -> None:
    rows = torch.tensor(
        [[3.0, 0.0], [0.0, 2.0], [-1.0, 0.0], [0.0, 0.0]], dtype=torch.float64
    )
    expected = {
        "arccos": [
            [0, np.pi / 2, np.pi, 0],
            [np.pi / 2, 0, np.pi / 2, 0],
            [np.pi, np.pi / 2, 0, 0],
            [0, 0, 0, 0],
        ],
        "L2": [[0, 13, 16, 9], [13, 0, 5, 4], [16, 5, 0, 1], [9, 4, 1, 0]],
        "L1": [[0, 5, 4, 3], [5, 0, 3, 2], [4, 3, 0, 1], [3, 2, 1, 0]],
    }
    for measure, matrix in expected.items():
        seen = Gradients(4, measure)  # type: ignore[arg-type]
        seen.add(range(4), rows)
        assert np.allclose(seen.refreshed(), matrix, atol=1e-12), measure


def test_a_client_drawn_twice_works_twice_only_if_asked() -> None:
    fed = poise.federation("synthetic", clients=3, seed=0)
    task, solver = poise.task("logistic"), SGD(lr=0.1, steps=2, batch_size=2)
    runs, records = {}, {True: list[Any](), False: list[Any]()}
    for twice in (False, True):
        sampler = MD(6, independent_draws=twice)
        runs[twice] = poise.train(
            fed,
            task,
            solver,
            sampler=sampler,
            rounds=4,
            callbacks=[records[twice].append],
        )
    for twice, run in runs.items():
        rows = [c for record in records[twice] for c in record.contributions]
        assert len(rows) == (
            24 if twice else len({(n, c) for n, c in np.argwhere(run.weights)})
        )
        assert np.allclose(run.weights.sum(axis=1), 1)
    assert np.array_equal(runs[False].weights, runs[True].weights)  # the same draws
    assert not np.array_equal(runs[False].model, runs[True].model)  # but more work


def test_what_samplers_look_back_on() -> None:
    setting = Setting(4, np.ones(4, dtype=int), np.full(4, 0.25))
    past = History(
        last_norm={0: 9.0, 1: 1.0, 2: 1.0, 3: 1.0},
        last_loss={0: 0.1, 1: 0.2, 2: 0.3, 3: 0.4},
    )
    count = np.zeros(4)
    for n in range(2000):
        count[Optimal(1).draw(setting, np.random.default_rng(n), n, past).clients] += 1
    q = np.array([9, 1, 1, 1]) / 12
    assert (np.abs(count / 2000 - q) <= 5 * np.sqrt(q * (1 - q) / 2000)).all()
    worst = PowerOfChoice(2, 4).draw(setting, np.random.default_rng(0), 0, past)
    assert worst.clients.tolist() == [2, 3]
    unheard = PowerOfChoice(1, 4).draw(
        setting,
        np.random.default_rng(0),
        0,
        History(last_loss={0: 9.0, 1: 9.0, 2: 9.0}),
    )
    assert unheard.clients.tolist() == [3]


@pytest.mark.parametrize("sampler", [MD(1), Optimal(1), PowerOfChoice(1, 2)], ids=str)
def test_samplers_declare_whether_they_use_norms(sampler: Any) -> None:
    setting = Setting(4, np.ones(4, dtype=int), np.full(4, 0.25))

    def drawn(*norms: float) -> list[list[int]]:
        past = History(last_norm=dict(enumerate(norms)))
        rngs = map(np.random.default_rng, range(30))
        return [sampler.draw(setting, rng, 1, past).clients.tolist() for rng in rngs]

    depends = drawn(1.0, 1.0, 1.0, 1.0) != drawn(9.0, 1.0, 1.0, 1.0)
    assert traits_of(sampler, SamplerTraits).uses_norms == depends


def test_rounding_draws_no_client_without_importance() -> None:
    """Ten times 0.1 is slightly less than 1, and so is the largest random number."""
    importance = np.array([0.1] * 10 + [0.0])
    assert importance.cumsum()[-1] < 1
    setting = Setting(11, np.ones(11, dtype=int), importance)
    largest: Any = SimpleNamespace(random=lambda m: np.full(m, np.nextafter(1, 0)))
    assert MD(2).draw(setting, largest, 0, History()).clients.tolist() == [9]


def test_reports_for_a_sampler_are_counted_as_communication() -> None:
    fed = poise.federation("synthetic", clients=6, seed=0)
    task, solver = poise.task("logistic"), SGD(lr=0.1, steps=1)
    choice, size = list[Any](), list[Any]()
    poise.train(
        fed,
        task,
        solver,
        sampler=PowerOfChoice(2, 4),
        rounds=2,
        callbacks=[choice.append],
    )
    poise.train(
        fed, task, solver, sampler=ClusteredBySize(2), rounds=2, callbacks=[size.append]
    )
    for a, b in zip(choice, size, strict=True):
        model = b.bytes_up // len(b.contributions)
        assert a.bytes_up == 2 * (model + 8)
        assert all(c.loss_before is not None for c in a.contributions)


@pytest.mark.thorough
def test_clients_that_never_come_back_cannot_be_compared() -> None:
    fed = poise.federation(
        "synthetic", clients=1000, on_demand=True, samples_per_client=5
    )
    with pytest.raises(poise.PoiseError, match="made on demand"):
        poise.train(
            fed,
            poise.task("logistic"),
            SGD(lr=0.1, steps=1),
            sampler=ClusteredBySimilarity(3),
            rounds=1,
        )
