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
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from poise.apps.ui.library import NotInRun
from poise.core.errors import LedgerError, PoiseError
from poise.ledger.files import write_failure, write_whole

FOLDER = "console"
"""The console's folder in a run folder; the console never changes the ledger."""

JOB = "job.json"
OUT = "out.json"
LOG = "log.txt"
LOCK = "lock"
MOST_LOG = 16_000
"""Number of characters shown from the end of a log."""

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
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
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
            write_whole(self.folder / name / JOB, json.dumps(facts, indent=1).encode())
            facts["pid"] = _spawn(self.folder / name, [*arguments, "--json"], lock)
            write_whole(self.folder / name / JOB, json.dumps(facts, indent=1).encode())
        finally:
            os.close(lock)  # the job inherited the descriptor and keeps the lock
        return self.get(name)

    def get(self, name: str) -> ConsoleJob:
        """One job by its id."""
        folder = self.folder / Path(name).name
        try:
            facts = json.loads((folder / JOB).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise NotInRun(f"this run has no action {name!r}") from error
        log = _text(folder / LOG)[-MOST_LOG:]
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
        return [self.get(name) for name in names]

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
            file = os.open(self.folder / LOCK, os.O_RDONLY)
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
                return os.pread(file, 200, 0).decode()
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
    with (folder / OUT).open("wb") as out, (folder / LOG).open("wb") as log:
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
        document = json.loads(_text(file))
    except ValueError:
        document = None
    if isinstance(document, dict):
        return document
    return {
        "error": "the action ended without a result",
        "hint": "see its log for the reason; all finished rounds are saved",
    }


def _text(file: Path) -> str:
    if file.exists():
        return file.read_text(encoding="utf-8", errors="replace")
    return ""
