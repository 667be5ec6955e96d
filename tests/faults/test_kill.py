"""``kill -9`` loses at most the rounds since the last flush; the resumed run is bit-identical."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from faults.support import Command, call, opened, run_into, same, shell, small
from parameters import thorough_except

KILLS = int(os.environ.get("POISE_KILLS", "20"))
READERS = 20  # killed reports and exports
ROUNDS = 400  # some groups of rounds that the ledger flushes together
RULES = ("last", "all", "unlearnable")


def experiment(keep: str) -> str:
    return small(rounds=ROUNDS, keep=f'"{keep}"')


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same experiment, never killed, under each rule of what is kept."""
    where = tmp_path_factory.mktemp("uninterrupted")
    return {keep: run_into(experiment(keep), where / keep) for keep in RULES}


ATTEMPTS = 8
"""How often a test tries to kill a process before it ends by itself."""


def killed(
    start: Callable[[], Command],
    run: Path,
    at: int,
    *,
    delay: float = 0.0,
    least: int = 0,
    changes: Path | None = None,
) -> None:
    """Kill a command some time after its run reached a round.

    Where the command ended before that, begin again and kill it sooner.

    Args:
        start: starts the command.
        run: the run folder that the command writes.
        at: the round; 0 is the time when the folder appears.
        delay: seconds to wait then.
        least: the first round at which the command may be killed.
        changes: the folder to restore before the command begins again, by default the run.
    """
    folder = changes or run
    before = folder.with_name(f"before-{folder.name}")
    if folder.exists():
        shutil.copytree(folder, before)
    for attempt in range(ATTEMPTS):
        command = start()
        while command.alive and not has_reached(run, max(at >> attempt, least)):
            time.sleep(0.0005)
        time.sleep(delay / 2**attempt)
        if command.kill():
            shutil.rmtree(before, ignore_errors=True)
            return
        shutil.rmtree(folder)
        if before.exists():
            shutil.copytree(before, folder)
    pytest.fail(f"the command ended before it was killed, {ATTEMPTS} times")


def has_reached(run: Path, at: int) -> bool:
    """Whether a run has recorded a round; 0 only needs its folder."""
    if at:
        return rounds_on_disk(run) >= at
    return run.exists()


def rounds_on_disk(run: Path) -> int:
    """The recorded rounds, as another process sees them; -1 before the ledger exists."""
    try:
        with closing(sqlite3.connect(run / "ledger.sqlite")) as database:
            (count,) = database.execute("SELECT count(*) FROM rounds").fetchone()
            return int(count)
    except sqlite3.Error:
        return -1


def killed_resumes(number: int) -> int:
    """How often the run of a test is killed again while it resumes."""
    return number // 3 % 3


def test_there_are_a_hundred_kills() -> None:
    """Of run, resume, report and export here, and of requests in two other files."""
    from unlearning.test_interrupted_requests import PLACES
    from unlearning.test_kill import ROUNDS as REQUESTS

    here = sum(1 + killed_resumes(number) for number in range(KILLS)) + READERS
    assert here + len(REQUESTS) + 2 * PLACES >= 100


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
        killed(start, run, 0, delay=draw.uniform(0, 0.03))
    else:
        at = draw.randrange(1, ROUNDS - 20)
        killed(start, run, at, delay=draw.uniform(0, 0.01))
    for _ in range(killed_resumes(number)):
        if (run / "experiment.toml").exists():
            killed(
                partial(Command, tmp_path, "resume", run),
                run,
                draw.randrange(ROUNDS - 10),
                delay=draw.uniform(0, 0.2),
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
    recorded = 0
    start = partial(Command, tmp_path, "run", file, "--out", tmp_path / "out")
    killed(start, run, 1, least=1)
    for _ in range(3):
        with opened(run) as before:
            assert recorded < before.rounds < ROUNDS, "no recorded round is lost"
            recorded = before.rounds
            before.verify()
        again = partial(Command, tmp_path, "resume", run)
        killed(again, run, recorded + 1, least=recorded + 1)
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


@pytest.mark.parametrize("number", thorough_except([0, 1], range(READERS)))
def test_killed_readers_change_nothing_and_leave_no_half_page(
    tmp_path: Path, number: int, uninterrupted: dict[str, Path]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(uninterrupted["unlearnable"], run)
    before = files_of(run)
    page = tmp_path / "report.html"
    arguments: tuple[object, ...] = ("report", run, "--out", page)
    if number % 2:
        pytest.importorskip("tensorboard")
        arguments = ("export", run, "--tensorboard", tmp_path / "board")
    delay = random.Random(number).uniform(0.05, 2.5)
    while not killed_after(delay, Command(tmp_path, *arguments)):
        delay /= 2  # the command was over
    assert files_of(run) == before
    assert not page.exists() or page.read_text().rstrip().endswith("</html>")
    with opened(run) as kept:
        kept.verify()


def killed_after(delay: float, command: Command) -> bool:
    """Whether a command was alive after this time, when it was killed."""
    time.sleep(delay)
    return command.kill()


def files_of(run: Path) -> dict[str, bytes]:
    """The contents of a run folder; readers of a ledger may leave SQLite's empty log."""
    return {
        str(file.relative_to(run)): file.read_bytes()
        for file in sorted(run.rglob("*"))
        if file.is_file() and not file.name.endswith(("-wal", "-shm"))
    }
