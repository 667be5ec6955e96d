"""Stacks in a temporary file: the same numbers, without their pages in the process."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import poise
from poise.core import equation, spill
from poise.core.errors import PoiseError
from poise.engine import client_batches
from poise.results.run import Run

FED = poise.federation("synthetic", clients=12, seed=0)
TASK = poise.task("logistic")
SOLVER = poise.solvers.SGD(lr=0.05, steps=3, batch_size=4)


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let every stack live in a file."""

    def apply() -> None:
        monkeypatch.setattr(spill, "LIMIT", 0)
        monkeypatch.setattr(spill, "PART", 2**10)

    return apply


def resident(stack: torch.Tensor) -> int:
    """The bytes of the mapping of a stack that are in this process's memory."""
    address = stack.data_ptr()
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split()[0]
        if "-" in first and not first.endswith(":"):
            start, stop = (int(part, 16) for part in first.split("-"))
            inside = start <= address < stop
        elif inside and first == "Rss:":
            return int(line.split()[1]) * 1024
    raise AssertionError("the stack is not mapped")


PARTS: dict[str, dict[str, Any]] = {
    "sum": {},
    "sampled": {"sampler": poise.samplers.Uniform(5)},
    "twice": {"sampler": poise.samplers.MD(6, independent_draws=True)},
    "similar": {"sampler": poise.samplers.ClusteredBySimilarity(4)},
    "median": {"aggregator": poise.aggregators.Median()},
    "trimmed": {"aggregator": poise.aggregators.TrimmedMean(0.2)},
    "losses": {"weighting": poise.weightings.SoftMax(temperature=1.0)},
    "top-k": {"channel": poise.channels.TopK(0.5)},
    "attacked": {"attacks": [poise.attacks.Mimic((1, 2))]},
    "buffered": {"clock": poise.clocks.Buffered(3)},
    "kept": {"keep_updates": True},
    "quarantine": {"audit": "quarantine"},
}


def trained(**parts: Any) -> Run:
    return poise.train(FED, TASK, SOLVER, rounds=4, seed=1, **parts)


@pytest.mark.parametrize("name", PARTS)
def test_runs_in_a_file_are_those_in_memory(
    name: str, small_limit: Callable[[], None]
) -> None:
    in_memory = trained(**PARTS[name])
    small_limit()
    in_file = trained(**PARTS[name])
    assert in_file.digest == in_memory.digest  # records with measurements, and models


def test_bad_updates_are_dropped_from_a_file(small_limit: Callable[[], None]) -> None:
    rng = np.random.default_rng(0)
    samples = [(rng.normal(size=(8, 3)), np.arange(8) % 2) for _ in range(4)]
    samples[2] = (1e30 * samples[2][0], samples[2][1])  # its loss overflows
    fed = poise.federation(samples)

    def run() -> Run:
        return poise.train(fed, TASK, SOLVER, rounds=2, seed=1, bad_updates="drop")

    in_memory = run()
    assert not in_memory.weights[:, 2].any()
    small_limit()
    assert run().digest == in_memory.digest


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_released_pages_leave_the_process_and_keep_their_numbers(
    small_limit: Callable[[], None],
) -> None:
    small_limit()
    stack = spill.empty((8, 2**16), torch.zeros(2**16))
    stack.copy_(torch.arange(8.0)[:, None])
    size = stack.numel() * 4
    assert spill.in_file(stack[3])
    assert resident(stack) == size
    spill.release(stack[5:])
    assert resident(stack) == size * 5 // 8
    spill.release(stack)
    assert resident(stack) == 0
    assert stack.sum(dim=1).tolist() == [2.0**16 * row for row in range(8)]
    spill.release(stack)
    direction = equation.combine(np.full(8, 0.5), stack)
    assert direction.tolist() == [14.0] * 2**16
    assert resident(stack) == 0


def test_views_and_copies_are_told_apart(small_limit: Callable[[], None]) -> None:
    before = torch.zeros(4, 100)
    small_limit()
    stack = spill.empty((4, 100), before)
    assert spill.in_file(stack[1:, :50])
    assert not spill.in_file(before)
    assert not spill.in_file(stack[1].clone())
    assert spill.in_file(spill.copied(stack))
    assert spill.in_file(spill.select(stack, torch.tensor([2, 0])))
    spill.release(before)  # nothing to do


def test_rows_of_all_kinds_are_copied(small_limit: Callable[[], None]) -> None:
    rows = torch.randn(5, 3000, generator=torch.Generator().manual_seed(0))
    index = torch.tensor([4, 0, 0])
    expected = rows[index], torch.cat([rows, rows[:2]]), rows.clone()
    small_limit()
    found = (
        spill.select(rows, index),
        spill.joined([rows, rows[:2]]),
        spill.copied(rows),
    )
    assert all(map(torch.equal, found, expected))


def test_the_limit_is_a_rule_about_bytes() -> None:
    vector = torch.zeros(2**20)
    assert not spill.spills((256, 2**20), vector)
    assert spill.spills((257, 2**20), vector)
    assert spill.spills((129, 2**20), vector.double())


def test_a_full_disk_is_named(
    small_limit: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    small_limit()
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(PoiseError, match=r"no room for the 0\.0 GB of updates"):
        spill.empty((2, 2), torch.zeros(2))


def test_without_a_way_to_reserve_files_stacks_stay_in_memory(
    small_limit: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    small_limit()
    monkeypatch.setattr(spill, "MAPPED", False)
    assert not spill.in_file(spill.empty((2, 2), torch.zeros(2)))


def test_a_missing_temporary_folder_is_named(
    small_limit: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    small_limit()
    monkeypatch.setattr(spill.tempfile, "gettempdir", none)
    with pytest.raises(PoiseError, match="No usable temporary directory found"):
        spill.empty((2, 2), torch.zeros(2))


def test_large_cohorts_work_in_small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that are computed one by one, in other chunks: the same digest."""
    task = poise.task("cnn")
    rng = np.random.default_rng(0)
    images = rng.normal(size=(64, 1, 12, 12)).astype(np.float32)
    fed = poise.federation((images, np.arange(64) % 2), partition="iid", clients=4)
    whole = poise.train(fed, task, SOLVER, rounds=2, seed=1)
    monkeypatch.setattr(client_batches, "LARGE_COHORT", 0)
    monkeypatch.setattr(client_batches, "LARGE_CHUNK", 1)
    assert poise.train(fed, task, SOLVER, rounds=2, seed=1).digest == whole.digest


def test_explain_says_where_updates_are_kept(small_limit: Callable[[], None]) -> None:
    plan = {"solver": SOLVER, "sampler": poise.samplers.Uniform(5), "rounds": 4}
    assert not [n for n in poise.explain(FED, TASK, **plan).notes if "memory" in n]
    small_limit()
    notes = poise.explain(FED, TASK, **plan).notes
    assert [n for n in notes if "kept in a temporary file in" in n]
