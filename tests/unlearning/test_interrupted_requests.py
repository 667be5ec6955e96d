"""A request that was killed or met a full disk, at any write, ends in the same certificate."""

from __future__ import annotations

import errno
import itertools
import json
import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from faults.support import Command, Outcome, call, run_into
from parameters import thorough_except
from poise.core import disk
from poise.ledger import lock, store
from poise.ledger.limits import LimitedConnection

EXPERIMENT = """\
[data]
source = "digits"
partition = "dirichlet"
alpha = 0.5
clients = 6
samples = 300

[task]
model = "logistic"

[solver]
name = "sgd"
lr = 0.01
steps = 2
batch_size = 16

[sampler]
name = "uniform"
m = 3

[run]
rounds = 6
keep = "unlearnable"
"""
ASKED = ("--clients", "1", "--target", "2", "--min-rounds", "2", "--max-rounds", "6")
PLACES = 20


@pytest.fixture(scope="module", autouse=True)
def every_round_written() -> Iterator[None]:
    """Write every round at once: the number of writes does not depend on the time."""
    with mock.patch.object(store, "GROUPED", 0.0):
        yield


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_into(EXPERIMENT, tmp_path_factory.mktemp("trained"))


@pytest.fixture(scope="module")
def whole(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The certificate of the request that nothing interrupted."""
    run = Path(shutil.copytree(trained, tmp_path_factory.mktemp("whole") / "run"))
    assert asked(run, "--seeded-noise").code == 0
    return certificate(run)


def asked(run: Path, *options: str) -> Outcome:
    return call("unlearn", run, *ASKED, *options, "--json")


def certificate(run: Path) -> dict[str, Any]:
    file = run / "unlearning" / "001" / "certificate.json"
    document: dict[str, Any] = json.loads(file.read_bytes())
    return document


def finished(run: Path, seeded: bool, whole: dict[str, Any]) -> None:
    """Ask again: the certificate holds, and with seeded noise it is the same.

    The branch's ledger also holds how many seconds each round took and that it was
    resumed, so its file has another hash, and the certificate another digest.
    """
    again = asked(run, *(["--seeded-noise"] if seeded else []))
    assert again.code == 0, again.err
    path = run / "unlearning" / "001" / "certificate.json"
    assert call("verify", path).code == 0
    if not seeded:
        return
    document = certificate(run)
    for one in (document, expected := json.loads(json.dumps(whole))):
        del one["digest"]
        del one["evidence"]["branches"][0]["file"]
    assert document == expected
    before = path.read_bytes()
    assert asked(run, "--seeded-noise").code == 0
    assert path.read_bytes() == before


class Writes:
    """Counts the writes of a request, and does something at one of them."""

    def __init__(self, at: int, then: Callable[[], None]) -> None:
        self.at = at
        self.then = then
        self.count = 0

    def seen(self) -> None:
        self.count += 1
        if self.count == self.at:
            self.then()

    def before(self, work: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            self.seen()
            return work(*arguments, **options)

        return counted

    def around(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """Before and after: a file that was written, but nothing that follows."""

        def counted(*arguments: Any, **options: Any) -> Any:
            self.seen()
            result = work(*arguments, **options)
            self.seen()
            return result

        return counted


STATEMENTS = ("BEGIN", "CREATE", "INSERT", "COMMIT")


@contextmanager
def counting(writes: Writes, full: bool = False) -> Iterator[None]:
    """Count every file that is written or renamed, and every step of a transaction.

    ``full`` counts only what a full disk may refuse, and raises as SQLite does.
    """
    statements = STATEMENTS if full else (*STATEMENTS, "PRAGMA")

    class Counted(LimitedConnection):
        def execute(self, sql: str, *rest: Any) -> sqlite3.Cursor:  # type: ignore[override]
            if sql.strip().startswith(statements):
                try:
                    writes.seen()
                except OSError as error:
                    raise disk_is_full() from error
            return super().execute(sql, *rest)

    connect = sqlite3.connect

    def counted_connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
        return connect(*arguments, **{**options, "factory": Counted})

    wrap = writes.before if full else writes.around
    with (
        mock.patch.object(disk.os, "replace", wrap(os.replace)),
        mock.patch.object(disk, "_write_new", writes.before(disk._write_new)),
        mock.patch.object(Path, "mkdir", wrap(Path.mkdir)),
        mock.patch.object(lock.os, "ftruncate", wrap(os.ftruncate)),
        mock.patch.object(sqlite3, "connect", counted_connect),
    ):
        yield


def disk_is_full() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    return error


@pytest.fixture(scope="module")
def places(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Any]:
    """Random writes of the request, its first and its last ones among them."""
    found = {}
    for full in (False, True):
        folder = tmp_path_factory.mktemp("counted")
        run = Path(shutil.copytree(trained, folder / "run"))
        writes = Writes(0, lambda: None)
        with counting(writes, full):
            assert asked(run).code == 0
        assert writes.count > 3 * PLACES
        inner = random.Random(23).sample(range(3, writes.count - 1), PLACES - 4)
        found[full] = [1, 2, *sorted(inner), writes.count - 1, writes.count]
    return found


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_the_number_of_writes_does_not_depend_on_time(
    seconds: float, trained: Path, places: dict[bool, Any], tmp_path: Path
) -> None:
    """Between any two looks at the clock, no time passes, or a second."""
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    ticks = itertools.count(0.0, seconds)
    writes = Writes(0, lambda: None)
    with counting(writes), mock.patch.object(store, "time") as clock:
        clock.monotonic = lambda: next(ticks)
        assert asked(run).code == 0
    assert writes.count == places[False][-1]


def die() -> None:
    os._exit(9)  # like kill -9: nothing is flushed, closed or released


def killed_at(run: Path, at: int, options: tuple[str, ...]) -> None:
    with counting(Writes(at, die)):
        asked(run, *options)


QUICK = (0, 5, 9, 13, 18)


@pytest.mark.parametrize("number", thorough_except(QUICK, range(PLACES)))
@pytest.mark.parametrize("seeded", [True, False], ids=["seeded", "secret"])
def test_a_request_killed_at_any_write_ends_in_the_same_certificate(
    number: int,
    seeded: bool,
    trained: Path,
    whole: dict[str, Any],
    places: dict[bool, list[int]],
    tmp_path: Path,
) -> None:
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    options = ("--seeded-noise",) if seeded else ()
    child = os.fork()
    if child == 0:
        try:
            killed_at(run, places[False][number], options)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 9
    finished(run, seeded, whole)


def no_space() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("number", thorough_except(QUICK, range(PLACES)))
@pytest.mark.parametrize("seeded", [True, False], ids=["seeded", "secret"])
def test_a_full_disk_at_any_write_is_named_and_the_request_ends_in_the_same_certificate(
    number: int,
    seeded: bool,
    trained: Path,
    whole: dict[str, Any],
    places: dict[bool, list[int]],
    tmp_path: Path,
) -> None:
    """From that write on, the disk stays full."""
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    writes = Writes(places[True][number], no_space)
    writes.seen = lambda: full_from(writes)  # type: ignore[method-assign]
    with counting(writes, full=True):
        outcome = asked(run, *(["--seeded-noise"] if seeded else []))
    assert outcome.code == 1, outcome
    assert "Traceback" not in outcome.err
    said = json.loads(outcome.out)
    assert str(run) in said["error"]
    assert "free some space" in said["hint"], said
    finished(run, seeded, whole)


def full_from(writes: Writes) -> None:
    writes.count += 1
    if writes.count >= writes.at:
        writes.then()


def test_a_killed_process_leaves_no_lock(trained: Path, tmp_path: Path) -> None:
    """In a process of its own, as the user starts it."""
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    command = Command(tmp_path, "unlearn", run, *ASKED, "--json")
    while command.alive and not (run / "unlearning" / "001").exists():
        pass
    assert command.kill()
    assert asked(run).code == 0
