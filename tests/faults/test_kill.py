"""``kill -9`` loses at most the round in flight, and the resumed run is bit-identical."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from faults.support import Command, call, opened, run_into, same, shell, small
from parameters import thorough_except

KILLS = int(os.environ.get("POISE_KILLS", "5"))
ROUNDS = 150
RULES = ("last", "all", "unlearnable")


def experiment(keep: str) -> str:
    return small(rounds=ROUNDS, keep=f'"{keep}"')


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same experiment, never killed, under each rule of what is kept."""
    where = tmp_path_factory.mktemp("uninterrupted")
    return {keep: run_into(experiment(keep), where / keep) for keep in RULES}


def killed(command: Command, run: Path, at: int, delay: float = 0.0) -> None:
    """Kill a command some time after its run reached a round (0: after its folder appeared)."""
    while command.alive and not (rounds_on_disk(run) >= at if at else run.exists()):
        time.sleep(0.0005)
    time.sleep(delay)
    command.kill()


def rounds_on_disk(run: Path) -> int:
    return max(
        (int(p.name[:8]) for p in (run / "models").glob("*.safetensors")), default=-1
    )


@pytest.mark.parametrize("number", thorough_except([0, 3], range(KILLS)))
def test_a_killed_run_ends_as_if_it_had_never_been_killed(
    number: int, uninterrupted: dict[str, Path], tmp_path: Path
) -> None:
    draw = random.Random(number)
    keep = RULES[number % 3]
    file = tmp_path / "exp.toml"
    file.write_text(experiment(keep))
    run = tmp_path / "out" / "seed-0"
    start = partial(Command, tmp_path, "run", file, "--out", tmp_path / "out")
    if number % 5 == 3:  # in its very first moments
        killed(start(), run, 0, draw.uniform(0, 0.03))
    else:
        killed(start(), run, draw.randrange(1, ROUNDS - 20), draw.uniform(0, 0.01))
    for _ in range(draw.randint(0, 2)):
        if (run / "experiment.toml").exists():
            killed(
                Command(tmp_path, "resume", run),
                run,
                draw.randrange(ROUNDS - 10),
                draw.uniform(0, 0.2),
            )
    finish = (
        Command(tmp_path, "resume", run)
        if (run / "experiment.toml").exists()
        else start()
    )
    outcome = finish.wait()
    assert outcome.code == 0, outcome.err
    same(run, uninterrupted[keep])


def test_kills_one_after_the_other_lose_nothing(
    uninterrupted: dict[str, Path], tmp_path: Path
) -> None:
    """Every killed attempt leaves at least as many rounds as the one before."""
    file = tmp_path / "exp.toml"
    file.write_text(experiment("unlearnable"))
    run = tmp_path / "out" / "seed-0"
    killed(Command(tmp_path, "run", file, "--out", tmp_path / "out"), run, 20)
    for at in (50, 90, 130):
        with opened(run) as before:
            assert at - 41 <= before.rounds < ROUNDS, (
                "all but the round in flight is there"
            )
            before.verify()
        killed(Command(tmp_path, "resume", run), run, at)
    assert call("resume", run, "--json").code == 0
    same(run, uninterrupted["unlearnable"])


@pytest.mark.slow
@pytest.mark.thorough
def test_the_command_itself_survives_a_kill(
    uninterrupted: dict[str, Path], tmp_path: Path
) -> None:
    """The same through ``python -m poise`` in fresh processes, as a user would see it."""
    (tmp_path / "exp.toml").write_text(experiment("last"))
    process = subprocess.Popen(
        [sys.executable, "-m", "poise", "run", "exp.toml", "--out", "out", "--json"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
    )
    run = tmp_path / "out" / "seed-0"
    while process.poll() is None and rounds_on_disk(run) < 40:
        time.sleep(0.0005)
    process.kill()
    assert process.wait() == -9, "the run was over before it could be killed"
    outcome = shell("resume", run, "--json")
    assert outcome.code == 0, outcome.err
    same(run, uninterrupted["last"])
