"""Mistakes of a tired user: exit code, place and hint of each, and no bar before it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from faults.support import call

EXPERIMENT = """
[data]
source = "digits"
partition = "dirichlet"
alpha = 0.3
clients = 6
[task]
model = "logistic"
[solver]
name = "sgd"
lr = 0.05
steps = 1
[run]
rounds = 1
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, as the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


FILES = [
    (
        "alpha = 0.3",
        'alpha = "0.3"',
        "line 5: .* must be a number",
        "without quotes: 0.3",
    ),
    ("clients = 6", 'clients = "6"', "line 6: .* whole number", "without quotes: 6"),
    (
        "lr = 0.05",
        'lr = "0.05"',
        "line 11: .* must be a number",
        "without quotes: 0.05",
    ),
    ("lr = 0.05", "learning_rate = 1", "line 11: .* no option", "did you mean 'lr'"),
    ("rounds = 1", 'rounds = "1"', "line 14: .* whole number", "without quotes: 1"),
    ("model =", "modle =", "line 7: .* no model and no module", "instead of modle"),
    ('partition = "dirichlet"', "", "line 5: .* no option 'alpha'", "'dirichlet'"),
    (
        "[run]",
        '[clock]\nname = "fixed-window"\ndt = 1.0\n'
        'durations = {name = "exponential", tau = [1.0]}\n[run]',
        "line 16: .* durations must be",
        'add slot = "durations"',
    ),
]


@pytest.mark.parametrize(("old", "new", "message", "hint"), FILES)
def test_a_wrong_line_is_named_with_what_to_write(
    here: Path, old: str, new: str, message: str, hint: str
) -> None:
    assert old in EXPERIMENT
    (here / "wrong.toml").write_text(EXPERIMENT.replace(old, new, 1))
    outcome = call("run", "wrong.toml")
    assert outcome.code == 2
    lines = outcome.err.splitlines()
    assert len(lines) == 2, outcome.err  # no plan and no bar before the error
    assert re.search(f"^error: wrong.toml, {message}", lines[0]), lines
    assert lines[1].startswith("hint:")
    assert hint in lines[1]


COMMANDS = [
    (("run", "wrogn.toml"), 2, "cannot read wrogn.toml", "did you mean wrong.toml"),
    (("run", "wrong"), 2, "cannot read wrong", "did you mean wrong.toml"),
    (("run", "folder"), 2, "Is a directory", "give an experiment file"),
    (("run", "wrong.toml", "--out", "wrong.toml"), 2, "is a file", "name a folder"),
    (("run", "wrong.toml", "--set", "solvr.lr=1"), 2, "--set solvr.lr=1", "solver"),
    (("run", "wrong.toml", "--shards", "99"), 2, "from 1 to the 6 clients", ""),
    (("explain", "wrogn.toml"), 2, "there is no file", "did you mean wrong.toml"),
    (("inspect", "wrogn.toml"), 2, "there is no file", "did you mean wrong.toml"),
    (("inspect", "digits", "--set", "alpha=1"), 2, "no option 'alpha'", "'dirichlet'"),
    (("data", "fetch", "mnst"), 2, "no data set 'mnst'", "did you mean 'mnist'"),
    (("data", "fetch", "digits"), 2, "digits has no files", "as it is"),
]


@pytest.mark.parametrize(("command", "code", "message", "hint"), COMMANDS)
def test_a_wrong_command_says_what_to_do(
    here: Path, command: tuple[str, ...], code: int, message: str, hint: str
) -> None:
    (here / "wrong.toml").write_text(EXPERIMENT)
    (here / "folder").mkdir()
    outcome = call(*command)
    assert outcome.code == code
    assert outcome.err.startswith("error: "), outcome.err
    assert message in outcome.err
    assert hint in outcome.err
    assert len(outcome.err.splitlines()) <= 2


def test_a_finished_run_says_how_to_add_rounds(here: Path) -> None:
    (here / "exp.toml").write_text(EXPERIMENT)
    assert call("run", "exp.toml", "--out", "r").code == 0
    outcome = call("resume", "r")
    assert outcome.code == 0
    assert "r/seed-0 had all its 1 rounds; add more with: poise resume" in outcome.err
    assert "0/1" not in outcome.err


def test_a_run_that_ended_early_does_not_claim_all_its_rounds(here: Path) -> None:
    (here / "exp.toml").write_text(EXPERIMENT)
    more = ("--max-bytes", "1", "--set", "run.rounds=3")
    assert call("run", "exp.toml", "--out", "r", *more).code == 0
    outcome = call("resume", "r")
    assert "r/seed-0 ended early, after 1 rounds; add more with" in outcome.err


def test_an_unknown_command_is_suggested_once(here: Path) -> None:
    outcome = call("rnu")
    assert outcome.code == 2
    assert outcome.err.count("Did you mean") == 1


def test_a_run_without_a_round_prints_no_scores(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from poise.apps.cli.run import show_runs
    from poise.apps.experiments.runner import run_experiment
    from poise.config.experiment import load

    (here / "exp.toml").write_text(EXPERIMENT)
    runs = run_experiment(load("exp.toml"), here / "r", stop=lambda: True)
    assert runs[0].rounds == 0
    show_runs(runs, json=False)
    assert "simulated time" not in capsys.readouterr().out


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_signs_that_the_locale_lacks_are_replaced(here: Path, encoding: str) -> None:
    (here / "exp.toml").write_text(EXPERIMENT)
    done = subprocess.run(
        [sys.executable, "-m", "poise", "explain", "exp.toml"],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert b"to requested objective" in done.stdout
    assert b"?" in done.stdout
