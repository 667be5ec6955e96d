"""Which run `poise export` takes where a folder has several."""

from __future__ import annotations

from pathlib import Path

import pytest

import poise
from poise.core.errors import InvalidOption
from poise.exports.choice import chosen_seed


def trained(folder: Path, lr: float, seed: int) -> poise.Run:
    quad = poise.quadratics([[0.0], [4.0]])
    solver = poise.solvers.SGD(lr=lr, steps=1)
    out = folder / f"lr={lr}" / f"seed-{seed}"
    return poise.train(quad, quad.task, solver, rounds=3, seed=seed, out=out)


def test_the_best_run_of_a_sweep_is_named_by_its_folder(tmp_path: Path) -> None:
    runs = [trained(tmp_path, lr, seed) for lr in (0.01, 0.5) for seed in (0, 1)]
    chosen = chosen_seed(runs)
    assert chosen.run.path == tmp_path / "lr=0.5" / "seed-0"
    assert "lr=0.5/seed-0: the lowest final loss" in chosen.reason
    assert chosen.reason.endswith("of 4 runs")


def test_a_seed_that_several_experiments_have_is_ambiguous(tmp_path: Path) -> None:
    runs = [trained(tmp_path, lr, 1) for lr in (0.01, 0.5)]
    with pytest.raises(InvalidOption, match="2 runs have seed 1") as raised:
        chosen_seed(runs, 1)
    assert "lr=0.5/seed-1" in raised.value.hint


def test_one_experiment_names_the_seed(tmp_path: Path) -> None:
    runs = [trained(tmp_path, 0.5, seed) for seed in (3, 4)]
    assert chosen_seed(runs, 4).run is runs[1]
    assert "seed 3 of 2 seeds" in chosen_seed(runs).reason
