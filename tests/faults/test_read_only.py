"""Finished runs in a folder in which nothing can be written: on a read-only medium, and as if."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from faults.support import call, files, opened, provable, run_into
from poise.ledger.store import DATABASE
from poise.ledger.summary import read_summary

COMMANDS = """
import sys
from pathlib import Path
import poise
from faults.support import call

run, out = sys.argv[1:]
certificate = f"{run}/unlearning/001/certificate.json"
for arguments in (
    ("report", run, "--out", f"{out}/report.html"),
    ("compare", run, run),
    ("audit", run),
    ("verify", certificate),
    ("explain", run),
):
    outcome = call(*arguments)
    assert outcome.code == 0, (arguments, outcome)
opened = poise.open_run(run)
opened.verify()
assert opened.rounds == 4
try:
    Path(run, "file").touch()
except OSError:
    outcome = call("resume", run)
    assert outcome.code == 1 and "cannot write" in outcome.err, outcome
else:
    raise AssertionError("the folder is not read-only")
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with a fulfilled unlearning request."""
    text = provable(rounds=4, keep='"unlearnable"')
    folder = run_into(text, tmp_path_factory.mktemp("finished"))
    outcome = call("unlearn", folder, "--clients", "2")
    assert outcome.code == 0, outcome.err
    return folder


def can_mount(folder: Path) -> bool:
    """Whether this process may mount a folder read-only for a process of its own."""
    if shutil.which("unshare") is None:
        return False
    done = subprocess.run(
        ["unshare", "-m", "mount", "--bind", folder, folder], capture_output=True
    )
    return done.returncode == 0


def test_every_reader_works_on_a_read_only_mount(
    finished: Path, tmp_path: Path
) -> None:
    if not can_mount(tmp_path):
        pytest.skip("mounting needs root and unshare")
    before = files(finished)
    mount = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" "$1" && shift'
    in_mount = ("unshare", "-m", "sh", "-c", f'{mount} && exec "$@"', "sh")
    done = subprocess.run(
        [*in_mount, finished, sys.executable, "-c", COMMANDS, finished, tmp_path],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert files(finished) == before


@pytest.fixture
def _nothing_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a read-only medium: the system denies writing, whoever asks."""
    allowed = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: mode != os.W_OK and allowed(path, mode)
    )


def listing(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))


@pytest.mark.usefixtures("_nothing_can_be_written")
def test_a_reader_creates_no_file(finished: Path) -> None:
    before = listing(finished)
    with opened(finished) as run:
        run.verify()
        assert run.rounds == 4
        assert listing(finished) == before  # also while the run is open
        with pytest.raises(sqlite3.OperationalError):
            run._ledger.database.execute("DELETE FROM rounds")
    assert read_summary(finished).state == "done"
    assert listing(finished) == before


@pytest.mark.usefixtures("_nothing_can_be_written")
def test_records_that_are_only_in_the_log_are_read(
    finished: Path, tmp_path: Path
) -> None:
    # a process that was killed leaves its last records in the log
    folder = tmp_path / "killed # 100%"
    writer = sqlite3.connect(finished / DATABASE, isolation_level=None)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("INSERT OR REPLACE INTO meta VALUES ('note', 'in the log')")
    shutil.copytree(finished, folder, ignore=lambda _, names: [DATABASE + "-shm"])
    writer.execute("DELETE FROM meta WHERE key = 'note'")
    writer.close()
    assert (folder / f"{DATABASE}-wal").stat().st_size > 0
    before = listing(folder)
    with opened(folder) as run:
        assert run.meta["note"] == "in the log"
        run.verify()
    assert listing(folder) == before
