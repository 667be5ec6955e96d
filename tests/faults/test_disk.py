"""A full disk: one clear message, no loss, and the same result once space is free."""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.support import Command, Outcome, call, opened, run_into, same, small
from parameters import thorough_except
from poise.ledger import schema

ROUNDS = 40
EXPERIMENT = small(rounds=ROUNDS, keep='"all"')


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_into(EXPERIMENT, tmp_path_factory.mktemp("whole"))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own, of four megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "poise-test", str(folder)],
        capture_output=True,
        text=True,
    )
    if mounted.returncode:
        pytest.skip(
            f"mounting a small tmpfs is not permitted here: {mounted.stderr.strip()}"
        )
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path, leave: int) -> Path:
    """A file that takes all space but ``leave`` kilobytes."""
    ballast = disk / "ballast"
    free = os.statvfs(disk)
    ballast.write_bytes(bytes(free.f_bavail * free.f_frsize - leave * 1024))
    return ballast


def one_clear_message(outcome: Outcome, folder: Path) -> None:
    assert outcome.code == 1, outcome
    assert "Traceback" not in outcome.err
    errors = [line for line in outcome.err.splitlines() if line.startswith("error:")]
    assert len(errors) == 1, outcome.err
    assert str(folder) in errors[0], "the file is named"
    assert "free some space" in outcome.err


@pytest.mark.parametrize(
    "leave",
    thorough_except([0, 40, 160], [0, 4, 12, 40, 80, 120, 160, 240, 320]),
)
def test_a_full_disk_is_named_and_the_run_goes_on_after_freeing_space(
    leave: int, disk: Path, whole: Path, tmp_path: Path
) -> None:
    file = tmp_path / "exp.toml"
    file.write_text(EXPERIMENT)
    run = disk / "out" / "seed-0"
    ballast = fill(disk, leave)
    outcome = Command(tmp_path, "run", file, "--out", disk / "out").wait()
    one_clear_message(outcome, disk / "out")
    if leave >= 160:
        with opened(run) as before:
            assert before.damage == ""
            assert before.models(before.rounds).ndim == 1
    if (
        run / "experiment.toml"
    ).exists():  # the disk is still full: the same clear message
        one_clear_message(Command(tmp_path, "resume", run).wait(), disk / "out")
    ballast.unlink()
    again = (
        ("resume", run)
        if (run / "experiment.toml").exists()
        else ("run", file, "--out", disk / "out")
    )
    finished = Command(tmp_path, *again).wait()
    assert finished.code == 0, finished.err
    same(run, whole)


@pytest.mark.parametrize("call_number", [1, 2, 3, 7])
def test_a_file_that_cannot_be_written_is_named(
    call_number: int, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same without a disk of its own: the n-th file (experiment.toml is the first) meets a full
    disk."""
    calls = 0

    def replace(part: Path, path: Path) -> None:
        nonlocal calls
        calls += 1
        if calls == call_number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.rename(part, path)

    file = tmp_path / "exp.toml"
    file.write_text(EXPERIMENT)
    with monkeypatch.context() as patch:
        patch.setattr("poise.core.disk.os.replace", replace)
        outcome = call("run", file, "--out", tmp_path / "out")
    one_clear_message(outcome, tmp_path / "out")
    assert not list((tmp_path / "out").rglob("*.part"))
    run = tmp_path / "out" / "seed-0"
    again = (
        ("resume", run)
        if (run / "experiment.toml").exists()
        else ("run", file, "--out", tmp_path / "out")
    )
    finished = call(*again, "--json")
    assert finished.code == 0, finished.err
    same(run, whole)


@pytest.mark.parametrize("most_pages", [2, 9, 12, 14])
def test_a_database_that_cannot_grow_is_named(
    most_pages: int, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite reports a full disk from inside a transaction, which must leave no trace."""
    free = schema.write_ahead

    def bounded(connection: sqlite3.Connection) -> None:
        free(connection)
        connection.execute(f"PRAGMA max_page_count = {most_pages}")

    file = tmp_path / "exp.toml"
    file.write_text(EXPERIMENT)
    with monkeypatch.context() as patch:
        patch.setattr(schema, "write_ahead", bounded)
        outcome = call("run", file, "--out", tmp_path / "out")
    one_clear_message(outcome, tmp_path / "out")
    assert "ledger.sqlite" in outcome.err
    finished = call("resume", tmp_path / "out" / "seed-0", "--json")
    assert finished.code == 0, finished.err
    same(tmp_path / "out" / "seed-0", whole)


def test_a_lock_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "out" / "seed-0" / "lock").mkdir(parents=True)
    (tmp_path / "exp.toml").write_text(EXPERIMENT)
    outcome = call("run", tmp_path / "exp.toml", "--out", tmp_path / "out")
    assert outcome.code == 1
    assert str(tmp_path / "out" / "seed-0" / "lock") in outcome.err
    assert "Traceback" not in outcome.err


def test_an_out_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("not a folder")
    (tmp_path / "exp.toml").write_text(EXPERIMENT)
    outcome = call("run", tmp_path / "exp.toml", "--out", tmp_path / "out")
    assert outcome.code == 2
    assert str(tmp_path / "out") in outcome.err
    assert "Traceback" not in outcome.err
