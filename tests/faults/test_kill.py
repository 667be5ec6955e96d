"""``kill -9`` at any moment loses at most the round in flight, and the resumed run ends bit-identical."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
from faults.support import Command, call, opened, run_into, same, shell, small

KILLS = int(os.environ.get("POISE_KILLS", "5"))
ROUNDS = 250
RULES = ("last", "all", "unlearnable")


def experiment(keep: str) -> str:
    return small(rounds=ROUNDS, keep=f'"{keep}"')


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same experiment, never killed, under each rule of what is kept."""
    where = tmp_path_factory.mktemp("uninterrupted")
    return {keep: run_into(experiment(keep), where / keep) for keep in RULES}


def killed(command: Command, run: Path, delay: float) -> bool:
    """Kill a command some time after its run folder appeared; False if it was done before that."""
    while command.alive and not run.exists():
        time.sleep(0.001)
    time.sleep(delay)
    alive = command.alive
    command.kill()
    return alive


@pytest.mark.parametrize("number", range(KILLS))
def test_a_killed_run_ends_as_if_it_had_never_been_killed(
    number: int, uninterrupted: dict[str, Path], tmp_path: Path
) -> None:
    draw = random.Random(number)
    keep = RULES[number % 3]
    file = tmp_path / "exp.toml"
    file.write_text(experiment(keep))
    run = tmp_path / "out" / "seed-0"
    early = number % 5 == 3
    start = lambda: Command(tmp_path, "run", file, "--out", tmp_path / "out")  # noqa: E731
    killed(start(), run, draw.uniform(0, 0.03) if early else draw.uniform(0, 1.0))
    for _ in range(draw.randint(0, 2)):
        if (run / "experiment.toml").exists():
            killed(Command(tmp_path, "resume", run), run, draw.uniform(0, 1.0))
    finish = Command(tmp_path, "resume", run) if (run / "experiment.toml").exists() else start()
    outcome = finish.wait()
    assert outcome.code == 0, outcome.err
    same(run, uninterrupted[keep])


def test_kills_one_after_the_other_lose_nothing(uninterrupted: dict[str, Path], tmp_path: Path) -> None:
    """Every killed attempt leaves at least as many rounds as the one before."""
    file = tmp_path / "exp.toml"
    file.write_text(experiment("unlearnable"))
    run = tmp_path / "out" / "seed-0"
    killed(Command(tmp_path, "run", file, "--out", tmp_path / "out"), run, 0.3)
    seen = []
    for _ in range(3):
        with opened(run) as before:
            seen.append(before.rounds)
            before.verify()
        killed(Command(tmp_path, "resume", run), run, 0.2)
    assert seen == sorted(seen)
    assert call("resume", run, "--json").code == 0
    same(run, uninterrupted["unlearnable"])


@pytest.mark.slow
def test_the_command_itself_survives_a_kill(uninterrupted: dict[str, Path], tmp_path: Path) -> None:
    """The same through ``python -m poise`` in fresh processes, as a user would see it."""
    import subprocess
    import sys

    (tmp_path / "exp.toml").write_text(experiment("last"))
    process = subprocess.Popen(
        [sys.executable, "-m", "poise", "run", "exp.toml", "--out", "out", "--json"], cwd=tmp_path,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    run = tmp_path / "out" / "seed-0"
    model = run / "models" / "00000040.safetensors"
    while process.poll() is None and not model.exists():
        time.sleep(0.0005)
    process.kill()
    assert process.wait() == -9, "the run was over before it could be killed"
    outcome = shell("resume", run, "--json")
    assert outcome.code == 0, outcome.err
    same(run, uninterrupted["last"])
