"""Long actions as separate processes: one at a time per run, each with a log.

A job is a `poise` command with ``--json``; the JSON document that it prints is its
outcome. It runs in a separate session, so it survives the console. It holds a file lock
while it lives, so every console can see whether it runs.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Literal

from poise.apps.ui.library import NotInRun
from poise.core.errors import LedgerError, PoiseError
from poise.ledger.files import write_failure
from poise.ledger.foreign import check_folder, open_regular, read_end, read_json

FOLDER = "console"
"""The console's folder in a run folder; the console never changes the ledger."""

JOB = "job.json"
OUT = "out.json"
LOG = "log.txt"
LOCK = "lock"
MOST_LOG = 16_000
"""Number of bytes shown from the end of a log."""

MOST_OUT = 2**22
"""Maximum size of a job's facts and of the document that it prints."""

BELOW = 2
"""The folders ``console/jobs`` above the lock; a job's files have one more."""

MOST_JOBS = 200
"""Maximum number of jobs listed for a run."""

FACTS: dict[str, Any] = {
    "kind": str,
    "title": str,
    "command": str,
    "about": dict,
    "began": str,
    "pid": int | None,
}
"""The facts of a job in its file, and their types."""

State = Literal["running", "done", "failed"]
# two threads that test the lock at once would see each other
_testing = threading.Lock()


class Busy(PoiseError):
    """An action cannot start because another one runs, or cannot stop: it has ended."""


@dataclass(frozen=True)
class ConsoleJob:
    """A started action and its state.

    Attributes:
        id: name of its folder.
        kind: ``unlearn``, ``verify``, ``inspect`` or ``run``.
        title: description for people.
        command: the command as a user would type it.
        began: start time, UTC.
        state: ``running``, ``done`` or ``failed``.
        outcome: the JSON document that it printed; ``{"error": …, "hint": …}`` after a
            failure.
        log: the end of its log.
        about: facts for pages, e.g. the certificate or the folder that it writes.
        pid: process id; only valid while the action runs.
    """

    id: str
    kind: str
    title: str
    command: str
    began: str
    state: State
    outcome: Mapping[str, Any] = field(default_factory=dict)
    log: str = ""
    about: Mapping[str, Any] = field(default_factory=dict)
    pid: int | None = None

    @property
    def error(self) -> str:
        """The error message; empty unless the action failed."""
        return str(self.outcome.get("error", ""))


class ConsoleJobs:
    """The jobs of one run, in ``RUN/console/jobs``."""

    def __init__(self, run: Path) -> None:
        self.folder = run / FOLDER / "jobs"

    def start(
        self,
        kind: str,
        title: str,
        arguments: Sequence[str],
        about: Mapping[str, Any] | None = None,
    ) -> ConsoleJob:
        """Start ``poise ARGUMENTS --json``; raises `Busy` while this run has a job."""
        check_folder(self.folder.parent.parent)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT
            lock = open_regular(self.folder / LOCK, flags, below=BELOW)
        except OSError as error:
            raise write_failure(self.folder, error) from error
        try:
            if not _acquire(lock):
                running = self.running()
                detail = ""
                if running:
                    detail = f": {running.title}"
                raise Busy(
                    f"another action on this run is in progress{detail}",
                    "wait until it ends, or stop it",
                )
            name = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
            os.ftruncate(lock, 0)
            os.pwrite(lock, name.encode(), 0)
            command = shlex.join(["poise", *arguments])
            facts: dict[str, Any] = {
                "kind": kind,
                "title": title,
                "command": command,
                "about": dict(about or {}),
                "began": datetime.now(UTC).isoformat(timespec="seconds"),
                "pid": None,
            }
            facts["pid"] = _start(self.folder / name, facts, arguments, lock)
        finally:
            os.close(lock)  # the job inherited the descriptor and keeps the lock
        return self.get(name)

    def get(self, name: str) -> ConsoleJob:
        """One job by its id."""
        folder = self.folder / Path(name).name
        try:
            facts = read_json(folder / JOB, MOST_OUT, below=BELOW + 1)
            _check_facts(facts)
            log = read_end(folder / LOG, MOST_LOG, below=BELOW + 1)
        except (OSError, ValueError) as error:
            raise NotInRun(f"this run has no action {name!r}: {error}") from error
        if self._holder() == folder.name:
            return ConsoleJob(folder.name, **facts, state="running", log=log)
        outcome = _outcome(folder / OUT)
        state: State = "done"
        if "error" in outcome:
            state = "failed"
        return ConsoleJob(folder.name, **facts, state=state, outcome=outcome, log=log)

    def all(self) -> list[ConsoleJob]:
        """Every job, the newest first."""
        names = sorted(
            (p.parent.name for p in self.folder.glob(f"*/{JOB}")), reverse=True
        )
        jobs = []
        for name in names[:MOST_JOBS]:
            with suppress(NotInRun):  # not a job of the console
                jobs.append(self.get(name))
        return jobs

    def running(self) -> ConsoleJob | None:
        """The running job, or None."""
        holder = self._holder()
        if holder and (self.folder / holder / JOB).exists():
            return self.get(holder)
        return None

    def stop(self, name: str) -> None:
        """Stop a job at the end of its current round, like Ctrl-C."""
        job = self.get(name)
        if job.state != "running" or job.pid is None:
            raise Busy(f"the action {name} has already ended")
        os.kill(job.pid, signal.SIGINT)

    def _holder(self) -> str:
        """The id of the running job; empty if none runs."""
        try:
            file = open_regular(self.folder / LOCK, below=BELOW)
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise LedgerError(
                f"cannot read {self.folder / LOCK}: {error.strerror}"
            ) from error
        with _testing:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return ""
            except BlockingIOError:
                return os.pread(file, 200, 0).decode(errors="replace")
            finally:
                os.close(file)


def _acquire(lock: int) -> bool:
    """Try to take the lock, several times: another console may test it for a moment."""
    for _ in range(5):
        with _testing:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                pass
        time.sleep(0.02)
    return False


def _spawn(folder: Path, arguments: Sequence[str], lock: int) -> int:
    """Start the process, which inherits the lock; a thread reaps it when it ends."""
    with _new(folder / OUT) as out, _new(folder / LOG) as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "poise", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=log,
            start_new_session=True,
            pass_fds=[lock],
        )
    threading.Thread(target=process.wait, daemon=True).start()
    return process.pid


def _outcome(file: Path) -> dict[str, Any]:
    """The document that a job printed."""
    try:
        document = read_json(file, MOST_OUT, below=BELOW + 1)
    except (OSError, ValueError):
        document = None
    if isinstance(document, dict):
        return document
    return {
        "error": "the action ended without a result",
        "hint": "see its log for the reason; all finished rounds are saved",
    }


def _start(
    folder: Path, facts: dict[str, Any], arguments: Sequence[str], lock: int
) -> int:
    """Make the folder of a job, start its process and return the process id."""
    try:
        folder.mkdir()
        _write(folder / JOB, facts)
        pid = _spawn(folder, [*arguments, "--json"], lock)
        _write(folder / JOB, {**facts, "pid": pid})
    except OSError as error:
        raise write_failure(folder, error) from error
    return pid


def _write(file: Path, facts: Mapping[str, Any]) -> None:
    """Write the facts of a job, whole or not at all; follows no link."""
    part = file.with_name(f"{secrets.token_hex(8)}.part")
    with _new(part) as out:
        out.write(json.dumps(facts, indent=1).encode())
    os.replace(part, file)


def _new(file: Path) -> IO[bytes]:
    """Open a new file; raises an error if something of that name exists."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    return os.fdopen(open_regular(file, flags, below=BELOW + 1), "wb")


def _check_facts(facts: Any) -> None:
    """Raise `ValueError` where the facts of a job have wrong keys or types."""
    if not isinstance(facts, dict) or facts.keys() != FACTS.keys():
        raise ValueError("the facts are not those of an action")
    for key, kind in FACTS.items():
        if not isinstance(facts[key], kind):
            raise ValueError(f"{key} has a wrong type")
    about = facts["about"]
    if not isinstance(about.get("grows", ""), str):
        raise ValueError("grows has a wrong type")
    if not isinstance(about.get("of", 0), int | None):
        raise ValueError("of has a wrong type")
