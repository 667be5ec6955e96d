"""Successive halving: decisions worked out by hand, and what they do to a sweep."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

import poise
from poise.apps.experiments.halving import RungDecision, decide
from poise.core.errors import InvalidOption
from poise.results import open_run
from sweeps.support import digests, file_in

SCORES = {  # name: values of three seeds, and their mean
    "a": [0.60, 0.70, 0.80],  # 0.70
    "b": [0.90, 0.10, 0.50],  # 0.50: the best single seed, but not the best mean
    "c": [0.71, 0.72, 0.73],  # 0.72
    "d": [0.40, 0.40, 0.40],  # 0.40
    "e": [0.65, 0.65, 0.65],  # 0.65
    "f": [0.10, 0.10, 0.10],  # 0.10
    "g": [0.20, 0.20, 0.20],  # 0.20
}


@pytest.mark.parametrize(
    ("eta", "lower", "kept"),
    [
        (2, False, ("c", "a", "e", "b")),  # ceil(7 / 2) = 4
        (3, False, ("c", "a", "e")),  # ceil(7 / 3) = 3
        (4, False, ("c", "a")),  # ceil(7 / 4) = 2
        (7, False, ("c",)),
        (3, True, ("f", "g", "d")),
    ],
)
def test_the_best_means_go_on(eta: int, lower: bool, kept: tuple[str, ...]) -> None:
    made = decide(SCORES, rung=1, round=9, eta=eta, lower_is_better=lower)
    assert made.kept == kept
    assert sorted(made.kept + made.stopped) == sorted(SCORES)
    assert made.means["b"] == pytest.approx(0.5)


def test_of_equal_means_the_first_goes_on() -> None:
    scores = {"x": [0.5], "y": [0.5], "z": [0.5]}
    made = decide(scores, rung=1, round=9, eta=3, lower_is_better=False)
    assert (made.kept, made.stopped) == (("x",), ("y", "z"))


@pytest.mark.parametrize("lower", [False, True])
def test_a_configuration_with_a_failed_run_comes_last(lower: bool) -> None:
    scores = {"x": [0.9, math.nan], "y": [0.1, 0.1], "z": [math.inf, 1.0]}
    made = decide(scores, rung=1, round=9, eta=2, lower_is_better=lower)
    assert made.kept[0] == "y"
    assert math.isnan(made.means["x"])


def test_a_decision_survives_its_file() -> None:
    made = decide(
        {**SCORES, "h": [math.nan]}, rung=2, round=9, eta=2, lower_is_better=True
    )
    again = RungDecision.from_document(json.loads(json.dumps(made.document())))
    assert (again.kept, again.stopped, again.rung, again.round) == (
        made.kept,
        made.stopped,
        2,
        9,
    )


def value(path: Path, rounds: int) -> float:
    """The accuracy of a run after so many rounds."""
    run = open_run(path)
    found = float(run.metric("accuracy")[rounds - 1])
    run.close()
    return found


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same six configurations, whole, and with rungs after rounds 3 and 6."""
    folder = tmp_path_factory.mktemp("halving")
    file = file_in(folder)
    over = {"solver.lr": [0.001, 0.1, 1.0], "sampler.m": [2, 5]}
    whole, halved = folder / "whole", folder / "halved"
    poise.sweep(file, over, seeds=(0, 1), out=whole)
    poise.sweep(file, over, seeds=(0, 1), rungs=(3, 6), eta=2, out=halved)
    return whole, halved


def test_a_sweep_stops_the_configurations_that_the_rule_names(
    swept: tuple[Path, Path],
) -> None:
    whole, halved = swept
    made = poise.open_sweep(halved)
    names = [c.name for c in made.configurations]
    for decision, rounds in zip(made.decisions, (3, 6), strict=True):
        means = {
            name: (
                value(whole / name / "seed-0", rounds)
                + value(whole / name / "seed-1", rounds)
            )
            / 2
            for name in names
        }
        order = sorted(
            names, key=lambda name: -means[name]
        )  # stable: the first of equals
        kept = order[: math.ceil(len(names) / 2)]
        assert list(decision.kept) == kept
        assert decision.round == rounds
        names = [name for name in names if name in kept]
    assert len(names) == 2  # 6 → 3 → 2
    for found in made.configurations:
        assert found.complete == (found.name in names)
        assert {run.rounds for run in found.progress} == {
            12 if found.stopped is None else found.stopped.round
        }
    assert made.finished
    assert made.best is not None
    assert made.best.name in names


def test_runs_that_go_on_are_those_of_a_sweep_without_rungs(
    swept: tuple[Path, Path],
) -> None:
    whole, halved = swept
    plain = digests(whole)
    for name, found in digests(halved).items():
        if found.startswith("12 "):
            assert found == plain[name]
        else:  # the beginning of the same run
            rounds, digest = found.split()
            run = open_run(whole / name)
            assert run.digest_after(int(rounds)) == digest
            run.close()


def test_decisions_stay_when_the_sweep_is_repeated(swept: tuple[Path, Path]) -> None:
    _, halved = swept
    before, file = digests(halved), (halved / "sweep.json").read_bytes()
    over = {"solver.lr": [0.001, 0.1, 1.0], "sampler.m": [2, 5]}
    poise.sweep(
        halved.parent / "exp.toml", over, seeds=(0, 1), rungs=(3, 6), eta=2, out=halved
    )
    assert digests(halved) == before
    assert (halved / "sweep.json").read_bytes() == file
    with pytest.raises(InvalidOption, match="has rungs"):
        poise.sweep(
            halved.parent / "exp.toml",
            over,
            seeds=(0, 1, 2),
            rungs=(3, 6),
            eta=2,
            out=halved,
        )


@pytest.mark.parametrize(
    ("rungs", "run", "says"),
    [
        ((12,), {}, "not before the last round"),
        ((4,), {"evaluate_every": 3}, "use multiples of 3"),
    ],
)
def test_a_rung_must_be_measured_and_before_the_end(
    rungs: tuple[int, ...], run: dict[str, object], says: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidOption, match=says):
        poise.sweep(
            file_in(tmp_path, **run),
            {"solver.lr": [0.1]},
            rungs=rungs,
            out=tmp_path / "s",
        )
    assert not (tmp_path / "s").exists()
