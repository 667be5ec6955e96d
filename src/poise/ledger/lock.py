"""One writer per run folder."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from pathlib import Path
from typing import IO

from poise.core.errors import RunLocked
from poise.ledger.files import write_failure


class Lock:
    """An exclusive lock that the operating system lets go of when its holder dies, however it dies.

    The file names the holder, so that a second process can say whom it is waiting for.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[str] | None = None

    def acquire(self) -> None:
        """Take the lock, or raise `RunLocked` with the holder's process id and host."""
        try:
            file = open(self.path, "a+", encoding="utf-8")  # noqa: SIM115 - held open for as long as the lock
        except OSError as error:
            raise write_failure(self.path, error) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(file.fileno(), 0)
            os.write(
                file.fileno(),
                json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(),
            )
        except BlockingIOError as error:
            file.seek(0)
            holder = _holder(file.read())
            file.close()
            raise RunLocked(
                f"{self.path.parent} is being written by {holder}",
                "wait for it, or stop that process first",
            ) from error
        except OSError as error:
            file.close()
            raise write_failure(self.path, error) from error
        self._file = file

    def release(self) -> None:
        """Let go of the lock."""
        if self._file is not None:
            self._file.seek(0)
            self._file.truncate()
            self._file.close()
            self._file = None


def held(path: Path) -> bool:
    """Whether somebody writes to the run whose lock this is, told without touching the lock.

    To try the lock would be surer, but a run that begins at that very moment would find it taken. A
    holder that died left its name in the file: its process is gone, or began after the file was
    written (then the number was given away again). A holder on another host is believed.
    """
    try:
        who = json.loads(path.read_text(encoding="utf-8"))
        pid, host, written = int(who["pid"]), who["host"], path.stat().st_mtime
    except (OSError, ValueError, KeyError, TypeError):
        return False  # let go of, or never taken
    if host != socket.gethostname():
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody else's, and alive
    return _age(pid) > time.time() - written - TICK


TICK = 2.0
"""Seconds by which the clocks of processes and of files may differ."""


def _age(pid: int) -> float:
    """Seconds since a process began; infinite where the system does not say."""
    try:
        start = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
        uptime = Path("/proc/uptime").read_text(encoding="utf-8").split()[0]
        return float(uptime) - int(start) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return float("inf")


def _holder(text: str) -> str:
    try:
        who = json.loads(text)
        return f"process {who['pid']} on {who['host']}"
    except (ValueError, KeyError, TypeError):
        return "another process"
