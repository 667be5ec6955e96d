"""Experiment files that name users' code: run, resumed, explained, unlearned, verified."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import poise
from faults.support import call, opened, same, shell
from own_code.support import MODELS, write_package, write_spy
from poise.config.experiment import load
from poise.core.errors import IncompatibleParts
from poise.core.objects import load_object, use_folders
from poise.core.types import Record
from poise.training import begin, compose


def a_run(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_package(folder, name)
    monkeypatch.chdir(folder)
    outcome = call("run", "exp.toml", "--out", "out", "--json")
    assert outcome.code == 0, outcome.err
    return folder / "out" / "seed-0"


def test_from_run_to_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_run(tmp_path, "own_whole", monkeypatch)
    with opened(run) as trained:
        assert set(trained.metrics) >= {"accuracy", "top_two", "loss"}
        assert set(json.loads(trained.meta["code"])["own_whole"]["modules"]) == {
            "own_whole.data",
            "own_whole.models",
            "own_whole.parts",
        }
    explained = call("explain", run, "--json")
    assert explained.code == 0, explained.err
    fast = ("--min-rounds", "1", "--max-rounds", "2", "--target", "2", "--heuristic")
    done = call("unlearn", run, "--clients", "1", *fast, "--json")
    assert done.code == 0, done.err
    certificate = next(run.rglob("certificate.json"))
    verified = call("verify", certificate, "--import", "own_whole.parts", "--json")
    assert verified.code == 0, verified.err
    assert "own_whole" in json.loads(verified.out)["code"]
    page = tmp_path / "report.html"
    assert call("report", run, "--out", page).code == 0
    assert "Code beside poise: own_whole" in page.read_text()


def test_a_killed_run_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    composition = compose(load(write_package(tmp_path, "own_killed")), 0)
    whole = tmp_path / "whole"
    left = tmp_path / "left"

    def note(record: Record) -> None:
        if record.index == 2:  # the files that a process leaves if it dies now
            shutil.copytree(whole, left)

    begin(composition, whole, [note]).close()
    resumed = poise.resume(left)
    assert resumed.rounds == 6
    resumed.close()
    same(whole, left)


@pytest.mark.thorough
def test_a_stopped_run_of_another_process_goes_on_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = a_run(tmp_path, "own_resumed", monkeypatch)
    short = shell("run", "exp.toml", "--out", "short", "--rounds", "3", cwd=tmp_path)
    assert short.code == 0, short.err
    half = tmp_path / "short" / "seed-0"
    elsewhere = shell("resume", half, "--rounds", "6", cwd=tmp_path / "own_resumed")
    assert elsewhere.code == 2
    assert "there is no module 'own_resumed.parts'" in elsewhere.err
    resumed = shell("resume", half, "--rounds", "6", cwd=tmp_path)
    assert resumed.code == 0, resumed.err
    same(whole, half)


def test_a_run_made_in_python_is_resumed_from_the_command_line(tmp_path: Path) -> None:
    write_package(tmp_path, "own_python")
    use_folders([tmp_path])
    load_object("own_python.parts:Equal")
    code = sys.modules

    def trained(rounds: int, out: Path) -> None:
        models = code["own_python.models"]
        fed = poise.federation(
            code["own_python.data"].load, clients=5, options={"rows": 200}, seed=3
        )
        task = poise.Task(
            module=models.make,
            options={"hidden": 5},
            loss=models.smooth,
            metrics={"top": models.top_two},
        )
        sgd = poise.solvers.SGD(lr=0.1, steps=2, batch_size=10)
        equal = code["own_python.parts"].Equal()
        poise.train(
            fed, task, sgd, weighting=equal, rounds=rounds, seed=3, out=out
        ).close()

    for module in ("models:make", "data:load"):
        load_object(f"own_python.{module}")
    trained(6, tmp_path / "whole")
    trained(3, tmp_path / "half")
    resumed = shell("resume", "half", "--rounds", "6", cwd=tmp_path)
    assert resumed.code == 0, resumed.err
    same(tmp_path / "whole", tmp_path / "half")


def test_objects_without_a_name_are_explained(tmp_path: Path) -> None:
    fed = poise.federation("digits", clients=3, samples=60)
    make = lambda: load_object("torch.nn:Sequential")(
        *(load_object("torch.nn:Flatten")(), load_object("torch.nn:Linear")(64, 10))
    )
    sgd = poise.solvers.SGD(lr=0.1, steps=1)
    poise.train(fed, poise.Task(module=make), sgd, rounds=1, out=tmp_path / "r").close()
    refused = call("resume", tmp_path / "r", "--rounds", "2")
    assert refused.code == 2
    assert "out of __main__ into a module" in refused.err.replace("\n", " ")


def test_changed_code_is_recorded_and_another_layout_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_run(tmp_path, "own_changed", monkeypatch)
    file = tmp_path / "own_changed" / "models.py"
    file.write_text(MODELS.replace("0.1", "0.2"))
    with pytest.warns(UserWarning, match="the code of own_changed changed"):
        poise.resume(run, rounds=7).close()
    with opened(run) as changed:
        assert any("own_changed.models" in event for event in changed.events)
    # as many parameters as before, under other names
    file.write_text(MODELS.replace("nn.Flatten(), ", "nn.Flatten(), nn.Identity(), "))
    del sys.modules["own_changed.models"]
    with pytest.raises(IncompatibleParts, match="other parameters"):
        poise.resume(run, rounds=8)


MISTAKES = {
    'import = "own_wrong.parts"': "import must be a list of modules",
    'import = ["own_wrong.parst"]': "there is no module 'own_wrong.parst'",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_mistakes_name_file_and_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    file = write_package(tmp_path, "own_wrong")
    monkeypatch.chdir(tmp_path)
    file.write_text(file.read_text().replace('import = ["own_wrong.parts"]', line))
    refused = call("run", "exp.toml", "--out", "out")
    assert refused.code == 2
    said = " ".join(refused.err.split())
    assert "exp.toml, line 1" in said
    assert MISTAKES[line] in said


READ_ONLY = """
import sys
from pathlib import Path
from faults.support import call
from ui.support import client
import poise

sys.path.insert(0, FOLDER)
run = Path(RUN)
certificate = next(run.rglob("certificate.json"))
for verb in (["report", run], ["compare", run, run], ["audit", run], ["list"],
             ["verify", certificate]):
    outcome = call(*verb)
    print(verb[0], outcome.code, " ".join(outcome.err.split()))
opened = poise.open_run(run)
opened.model, opened.contributions, opened.experiment, opened.digest
browser = client(run.parent)
print("/", browser.get("/").status_code, browser.get("/api/runs").status_code)
for route in ("run", "health", "audit", "federation", "unlearning", "jobs",
              "federation-figures", "graph-figures", "audit-figures",
              "unlearning-figures", "client?client=1", "quarantine?clients=1",
              "unlearning-cost?clients=2"):
    page, mark, question = route.partition("?")
    for place in ("/api/", "/"):
        link = place + page + "/seed-0" + mark + question
        print(link, browser.get(link).status_code)
assert not any(module.startswith("own_spied") for module in sys.modules)
"""


def test_reading_a_run_folder_imports_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command that only reads, in a process of its own, where the code could be found."""
    run = a_run(tmp_path, "own_spied", monkeypatch)
    fast = ("--min-rounds", "1", "--max-rounds", "2", "--target", "2", "--heuristic")
    assert call("unlearn", run, "--clients", "1", *fast, "--json").code == 0
    for module in [name for name in sys.modules if name.startswith("own_spied")]:
        del sys.modules[module]
    shutil.rmtree(tmp_path / "own_spied")
    witness = write_spy(tmp_path, "own_spied")
    script = READ_ONLY.replace("FOLDER", repr(str(tmp_path))).replace(
        "RUN", repr(str(run))
    )
    tests = str(Path(__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": tests},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout
    for line in ("report 0", "compare 0", "audit 0", "verify 2", "list 0"):
        assert line in said, said
    assert "not import" in said  # verify says why it stops
    assert " 200" in said
    assert " 500" not in said
    assert not witness.exists()
    resumed = shell("resume", run, "--rounds", "7", cwd=tmp_path)  # the test can fail
    assert resumed.code == 0, resumed.err
    assert witness.exists()


def test_a_new_project_runs_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = call("new", "own_project", "--json")
    assert made.code == 0, made.err
    assert "experiment.toml" in json.loads(made.out)["files"]
    project = tmp_path / "own_project"
    monkeypatch.chdir(project)
    outcome = call("run", "experiment.toml", "--json")
    assert outcome.code == 0, outcome.err
    final = json.loads(outcome.out)["runs"][0]["final"]
    assert final["accuracy"] > 0.7 > 0.25  # of four classes
    assert final["top_two"] >= final["accuracy"]
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q"], cwd=project, capture_output=True
    )
    assert tested.returncode == 0, tested.stdout.decode()


@pytest.mark.parametrize(
    "name", ["my-project", "Ünder", "class", "torch", "json", "1a"]
)
def test_odd_names_of_projects_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("new", name).code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_project_does_not_overwrite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "README.md").write_text("mine")
    refused = call("new", "mine")
    assert refused.code == 2
    assert "not empty" in refused.err
    assert np.array_equal(
        [p.name for p in (tmp_path / "mine").iterdir()], ["README.md"]
    )
