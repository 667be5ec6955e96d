"""The programs of examples/own run, and each experiment file is its program."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poise
from documentation.blocks import ROOT
from faults.support import call, opened
from own_code.support import forgotten_modules
from parameters import thorough_except
from poise.apps.deploy.policy import Policy
from poise.config.experiment import load
from poise.core.objects import load_function, use_folders
from poise.training import begin, compose

pytest.importorskip("pandas", reason="the extra [pandas] is not installed")

FOLDER = ROOT / "examples" / "own"
MOST_LINES = 40


@dataclass(frozen=True)
class Program:
    """How to run a program at a tiny scale, and the result that it reaches."""

    reached: Callable[[poise.Run], bool]
    tiny: dict[str, int] = field(default_factory=dict)
    tables: str = "data"
    """The table of the experiment file with the sizes of `tiny`."""


def last(run: poise.Run, metric: str) -> np.ndarray:
    return np.asarray(run.metric(metric)[-1])


PROGRAMS = {
    "quick_start": Program(
        lambda run: (
            last(run, "client_test_accuracy").shape == (10,)
            and last(run, "accuracy") > 0.25  # ten classes, one tenth by chance
        ),
        {"samples": 200},
    ),
    "play_lines": Program(
        lambda run: 5 < last(run, "own_perplexity") < 18,  # 100 without training
        {"roles": 2, "lines": 10},
        "data.options",
    ),
    "shirts": Program(lambda run: bool(last(run, "accuracy") > 0.7), {"samples": 100}),
    "csv_hospitals": Program(
        lambda run: (
            bool((last(run, "client_test_auroc") > 0.6).all())
            and last(run, "own_auroc") > 0.75
        )
    ),
    "frozen_backbone": Program(
        lambda run: bool(run.model.size == 650 and last(run, "accuracy") > 0.85)
    ),
    "shapes": Program(
        lambda run: bool((last(run, "client_test_dice") > 0.8).all()),
        {"images": 16},
        "data.options",
    ),
    "symptoms": Program(
        lambda run: bool(last(run, "own_f1") > 0.9 and last(run, "own_auroc") > 0.95),
        {"rows": 120},
        "data.options",
    ),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the programs, because two of them write files beside themselves."""
    copied = tmp_path / "own"
    shutil.copytree(FOLDER, copied, ignore=shutil.ignore_patterns("data", "__py*"))
    monkeypatch.chdir(tmp_path)
    with forgotten_modules():
        use_folders([copied])
        yield copied


def started(name: str, **sizes: int) -> poise.Run:
    """Run the Python form, or skip it where its data set is missing."""
    try:
        return load_function(f"{name}:main")(**sizes)
    except poise.core.errors.DataError as error:
        pytest.skip(error.message)


def run_file(folder: Path, name: str, *options: str) -> Path:
    """Run the experiment file and return the folder of the run."""
    out = folder / "runs"
    outcome = call("run", folder / f"{name}.toml", "--out", out, "--json", *options)
    assert outcome.code == 0, outcome.err
    return out / "seed-0"


def test_every_program_has_a_file_and_a_line_in_the_table() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == set(PROGRAMS)
    assert {path.stem for path in FOLDER.glob("*.toml")} == set(PROGRAMS)
    table = (FOLDER / "README.md").read_text(encoding="utf-8")
    for name in PROGRAMS:
        assert f"| `{name}` |" in table


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_short(name: str) -> None:
    text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    imported: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            imported |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = [
        line
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip() and number not in imported
    ]
    assert len(lines) <= MOST_LINES


@pytest.mark.parametrize("name", PROGRAMS)
def test_both_forms_give_the_same_model(name: str, folder: Path) -> None:
    program = PROGRAMS[name]
    run = started(name, **program.tiny, rounds=2)
    sizes: list[Any] = []
    for key, value in program.tiny.items():
        sizes += ["--set", f"{program.tables}.{key}={value}"]
    with opened(run_file(folder, name, "--rounds", "2", *sizes)) as same:
        assert np.array_equal(same.model, run.model)
        assert same.metrics == run.metrics
        for metric in run.metrics:
            assert np.array_equal(
                same.metric(metric), run.metric(metric), equal_nan=True
            )


@pytest.mark.parametrize(
    "name", thorough_except(["shapes"], ["quick_start", "csv_hospitals", "shapes"])
)
def test_nodes_give_the_same_model(name: str, folder: Path) -> None:
    """Nodes have no test data of their own, so the files lose these metrics."""
    pytest.importorskip("flwr", reason="the extra [flower] is not installed")
    from own_code.test_nodes import deployed

    started(name, **PROGRAMS[name].tiny, rounds=1)  # writes the files that it reads
    file = folder / f"{name}.toml"
    lines = file.read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if "client_test" not in line]
    file.write_text("\n".join(kept), encoding="utf-8")
    sizes = [f"{PROGRAMS[name].tables}.{k}={v}" for k, v in PROGRAMS[name].tiny.items()]
    given = load(file, sizes)
    there = deployed(given, Policy(allow=(name,)))
    here = begin(compose(given, 0).with_options(rounds=2))
    assert np.array_equal(there.model, here.model)


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_reach_a_good_result(name: str, folder: Path) -> None:
    run = started(name)
    assert PROGRAMS[name].reached(run)
    with opened(run_file(folder, name)) as same:
        assert np.array_equal(same.model, run.model)
