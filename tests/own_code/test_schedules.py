"""Schedules that are functions of a user's module, by name."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import poise
from faults.support import call, opened, same, shell
from own_code.support import write_package
from poise.backends.own_code import local_packages
from poise.config.experiment import load
from poise.core.errors import InvalidOption
from poise.core.objects import load_object, use_folders
from poise.core.parts import build, describe
from poise.engine.local_work import LocalWork
from poise.engine.wire import Wire
from poise.solvers.schedules import Function, WarmUp
from poise.training import compose, experiment_of, parts_in

RATES = "def fall(n):\n    return 1 / (1 + n)\n"

WRITTEN = {
    "name": 'schedule = "{name}.rates:fall"',
    "table": 'schedule = {{name = "function", function = "{name}.rates:fall"}}',
    "nested": (
        'local_schedule = {{name = "warm-up", length = 1, then = "{name}.rates:fall"}}'
    ),
}


def an_experiment(folder: Path, name: str, line: str) -> Path:
    """Write an experiment whose solver has this line, and its package."""
    file = write_package(folder, name)
    (folder / name / "rates.py").write_text(RATES)
    solver = "batch_size = 10\n"
    lines = solver + line.format(name=name) + "\n"
    file.write_text(file.read_text().replace(solver, lines))
    return file


@pytest.mark.parametrize("form", WRITTEN)
def test_a_file_names_the_function(tmp_path: Path, form: str) -> None:
    name = f"own_rates_{form}"
    composition = compose(load(an_experiment(tmp_path, name, WRITTEN[form])), 0)
    assert f"{name}.rates" in str(composition.facts()[0]["code"])
    solver: Any = composition.parts.solver
    rates = sys.modules[f"{name}.rates"]
    assert build("solver", describe(solver)) == solver
    if form == "nested":
        assert solver.local_schedule == WarmUp(1, then=rates.fall)
    else:
        assert solver.rate(3) == pytest.approx(0.1 / 4)


def test_from_run_to_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    an_experiment(tmp_path, "own_falling", WRITTEN["name"])
    monkeypatch.chdir(tmp_path)
    for folder, rounds in (("whole", 6), ("half", 3)):
        done = shell(
            "run", "exp.toml", "--out", folder, "--rounds", rounds, cwd=tmp_path
        )
        assert done.code == 0, done.err
    run = tmp_path / "half" / "seed-0"
    resumed = shell("resume", run, "--rounds", "6", cwd=tmp_path)
    assert resumed.code == 0, resumed.err
    same(tmp_path / "whole" / "seed-0", run)
    explained = shell("explain", run, cwd=tmp_path)
    assert explained.code == 0, explained.err
    fast = ("--min-rounds", "1", "--max-rounds", "2", "--target", "2", "--heuristic")
    done = shell("unlearn", run, "--clients", "1", *fast, cwd=tmp_path)
    assert done.code == 0, done.err
    certificate = next(run.rglob("certificate.json"))
    trusted = ("--import", "own_falling.parts", "--import", "own_falling.rates")
    verified = shell("verify", certificate, *trusted, cwd=tmp_path)
    assert verified.code == 0, verified.err


def test_only_commands_that_train_import_the_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = an_experiment(tmp_path, "own_unread", WRITTEN["table"])
    file.write_text(
        file.read_text()
        .replace('import = ["own_unread.parts"]', "")
        .replace('[weighting]\nname = "own_unread-equal"', "")
    )
    done = shell("run", "exp.toml", "--out", "out", "--rounds", "1", cwd=tmp_path)
    assert done.code == 0, done.err
    run = tmp_path / "out" / "seed-0"
    monkeypatch.chdir(tmp_path)
    use_folders([tmp_path])
    for verb in (["report", run], ["audit", run], ["list"]):
        assert call(*verb).code == 0
    with opened(run) as trained, pytest.raises(InvalidOption) as refused:
        parts_in(experiment_of(trained))
    assert "does not import the function 'own_unread.rates:fall'" in str(refused.value)
    assert "own_unread" not in sys.modules
    experiment = load(run / "experiment.toml")
    compose(experiment, 0)
    assert "own_unread.rates" in sys.modules
    parts_in(experiment)


def test_a_run_made_in_python_is_resumed_from_the_command_line(tmp_path: Path) -> None:
    an_experiment(tmp_path, "own_python_rates", WRITTEN["name"])
    use_folders([tmp_path])
    fall = load_object("own_python_rates.rates:fall")
    fed = poise.federation("digits", clients=3, samples=60)
    sgd = poise.solvers.SGD(lr=0.1, steps=1, schedule=fall)
    assert (
        poise.solvers.SGD(0.1, steps=1, schedule="own_python_rates.rates:fall") == sgd
    )
    task = poise.task("logistic")
    poise.train(fed, task, sgd, rounds=1, out=tmp_path / "r").close()
    resumed = shell("resume", "r", "--rounds", "2", cwd=tmp_path)
    assert resumed.code == 0, resumed.err


def test_a_function_without_a_name_is_explained(tmp_path: Path) -> None:
    fed = poise.federation("digits", clients=3, samples=60)
    sgd = poise.solvers.SGD(lr=0.1, steps=1, schedule=lambda n: 1.0)
    task = poise.task("logistic")
    poise.train(fed, task, sgd, rounds=1, out=tmp_path / "r").close()
    refused = call("resume", tmp_path / "r", "--rounds", "2")
    assert refused.code == 2
    assert "top level of a module" in " ".join(refused.err.split())


@pytest.mark.parametrize(
    "table",
    [
        {"name": "sgd", "lr": 0.1, "steps": 1, "schedule": "os:abort"},
        {"name": "plain", "x": {"slot": "schedule", "name": "function"}},
        {
            "name": "sgd",
            "steps": 1,
            "lr": {"slot": "schedule", "name": "function", "function": "os:abort"},
        },
    ],
)
def test_a_table_alone_calls_nothing(table: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        build("solver", table)


def test_the_function_travels_to_the_workers_of_a_cluster(tmp_path: Path) -> None:
    an_experiment(tmp_path, "own_travels", WRITTEN["name"])
    use_folders([tmp_path])
    fall = Function("own_travels.rates:fall")
    solver = poise.solvers.SGD(lr=0.1, steps=1, local_schedule=WarmUp(2, then=fall))
    fed = poise.federation("digits", clients=2, samples=40)
    oracle = poise.task("logistic").bind(fed)
    local = LocalWork(oracle, solver, Wire(oracle.layout, poise.channels.Plain()))
    assert [package.__name__ for package in local_packages(local)] == ["own_travels"]
