"""Long actions as processes of their own: one at a time per run, with a log, and none the worse for
a killed console.

A job is a `poise` command with ``--json``: the one document that it prints is its outcome. It is
started in a session of its own and holds the lock of its folder for as long as it lives, however it
ends; so whether it runs can be seen by any console, also by one that was started later.
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

from poise.apps.ui.library import NotThere
from poise.core.errors import LedgerError, PoiseError
from poise.ledger.files import write_failure, write_whole

FOLDER = "console"
"""Where, in a run's folder, the console keeps what it adds; the ledger is not touched."""

JOB, OUT, LOG, LOCK = "job.json", "out.json", "log.txt", "lock"
MOST_LOG = 16_000
"""Characters of a log that are shown: its end."""

State = Literal["running", "done", "failed"]
_testing = threading.Lock()  # one look at a lock at a time, or two looks would see each other


class Busy(PoiseError):
    """An action cannot begin or be stopped now: another one goes on, or it has ended."""


@dataclass(frozen=True)
class Job:
    """An action that was started, and what has come of it so far.

    Attributes:
        id: its folder's name.
        kind: ``unlearn``, ``verify``, ``inspect`` or ``run``.
        title: what it does, in words.
        command: as a user would type it.
        began: when, UTC.
        state: ``running``, ``done`` or ``failed``.
        outcome: the document that it printed; ``{"error": …, "hint": …}`` where it failed.
        log: the end of what it said on the way.
        about: facts for those who show it: which certificate, which folder grows.
        pid: of its process; only valid while it runs.
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
        """Why it failed; empty where it did not."""
        return str(self.outcome.get("error", ""))


class Jobs:
    """The jobs of one run, in ``RUN/console/jobs``."""

    def __init__(self, run: Path) -> None:
        self.folder = run / FOLDER / "jobs"

    def start(
        self,
        kind: str,
        title: str,
        arguments: Sequence[str],
        about: Mapping[str, Any] | None = None,
    ) -> Job:
        """Start ``poise ARGUMENTS --json``; raises `Busy` while another job of this run goes on."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            held = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise write_failure(self.folder, error) from error
        try:
            if not _taken(held):
                found = self.running()
                what = f": {found.title}" if found else ""
                raise Busy(f"an action on this run goes on{what}", "wait for its end, or stop it")
            name = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
            os.ftruncate(held, 0)
            os.pwrite(held, name.encode(), 0)
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
            facts["pid"] = _spawn(self.folder / name, [*arguments, "--json"], held)
            write_whole(self.folder / name / JOB, json.dumps(facts, indent=1).encode())
        finally:
            os.close(held)  # the job has it too, and keeps it locked
        return self.get(name)

    def get(self, name: str) -> Job:
        """One job by its id."""
        place = self.folder / Path(name).name
        try:
            facts = json.loads((place / JOB).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise NotThere(f"there is no action {name!r} of this run") from error
        log = _text(place / LOG)[-MOST_LOG:]
        if self._holder() == place.name:
            return Job(place.name, **facts, state="running", log=log)
        outcome = _outcome(place / OUT)
        state: State = "failed" if "error" in outcome else "done"
        return Job(place.name, **facts, state=state, outcome=outcome, log=log)

    def all(self) -> list[Job]:
        """Every job, the newest first."""
        names = sorted((p.parent.name for p in self.folder.glob(f"*/{JOB}")), reverse=True)
        return [self.get(name) for name in names]

    def running(self) -> Job | None:
        """The job that goes on."""
        holder = self._holder()
        return self.get(holder) if holder and (self.folder / holder / JOB).exists() else None

    def stop(self, name: str) -> None:
        """Ask a job to stop, as Ctrl-C does: at the end of the round it is in."""
        job = self.get(name)
        if job.state != "running" or job.pid is None:
            raise Busy(f"the action {name} has ended already")
        os.kill(job.pid, signal.SIGINT)

    def _holder(self) -> str:
        """The id of the job that lives; empty where none does."""
        try:
            file = os.open(self.folder / LOCK, os.O_RDONLY)
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise LedgerError(f"cannot read {self.folder / LOCK}: {error.strerror}") from error
        with _testing:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return ""
            except BlockingIOError:
                return os.pread(file, 200, 0).decode()
            finally:
                os.close(file)


def _taken(held: int) -> bool:
    """Take the lock; tried more than once, since another console may be looking at it for a
    moment.
    """
    for _ in range(5):
        with _testing:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                pass
        time.sleep(0.02)
    return False


def _spawn(place: Path, arguments: Sequence[str], held: int) -> int:
    """Start the process, which inherits the lock; who ends is waited for by a thread."""
    with (place / OUT).open("wb") as out, (place / LOG).open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "poise", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=log,
            start_new_session=True,
            pass_fds=[held],
        )
    threading.Thread(target=process.wait, daemon=True).start()
    return process.pid


def _outcome(file: Path) -> dict[str, Any]:
    """The document that a job printed."""
    try:
        found = json.loads(_text(file))
    except ValueError:
        found = None
    if isinstance(found, dict):
        return found
    return {
        "error": "it ended without a result",
        "hint": "its log may say why; what it had finished is kept",
    }


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
