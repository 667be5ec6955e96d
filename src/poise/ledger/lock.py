"""The lock of a run folder: one writer at a time."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import stat
import time
from pathlib import Path
from typing import IO

from poise.core.errors import LedgerError, RunLocked
from poise.ledger.files import refuse_link, write_failure


class Lock:
    """An exclusive lock that the operating system releases when its holder dies.

    The lock file names the holder, so that a second process can report which process
    has it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[str] | None = None

    def acquire(self) -> None:
        """Take the lock, or raise `RunLocked` with the holder's process id and host."""
        refuse_link(self.path)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            file = os.fdopen(os.open(self.path, flags, 0o666), "a+", encoding="utf-8")
        except OSError as error:
            raise write_failure(self.path, error) from error
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            file.close()
            raise LedgerError(f"{self.path} is not a regular file", "delete it")
        if status.st_nlink > 1:  # writing to it would change the other file
            file.close()
            raise LedgerError(
                f"{self.path} is a hard link to another file", "delete it"
            )
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(file.fileno(), 0)
            holder = {"pid": os.getpid(), "host": socket.gethostname()}
            os.write(file.fileno(), json.dumps(holder).encode())
        except BlockingIOError as error:
            file.seek(0)
            process = _process_name(file.read())
            file.close()
            raise RunLocked(
                f"{self.path.parent} is being written by {process}",
                "wait for that process to end, or stop it",
            ) from error
        except OSError as error:
            file.close()
            raise write_failure(self.path, error) from error
        self._file = file

    def release(self) -> None:
        """Release the lock."""
        if self._file is not None:
            self._file.seek(0)
            self._file.truncate()
            self._file.close()
            self._file = None


def held(path: Path) -> bool:
    """Whether a process writes to the run of this lock file; does not touch the lock.

    Trying the lock would be surer, but a run that starts at that moment would find it
    taken. A holder that died left its name in the file: its process is gone, or started
    after the file was written (the system reused the process id). A holder on another
    host counts as alive.
    """
    try:
        holder = json.loads(_read(path))
        pid = int(holder["pid"])
        host = holder["host"]
        written = path.stat().st_mtime
    except (OSError, ValueError, KeyError, TypeError):
        return False  # released, or never taken
    if host != socket.gethostname():
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # the process of another user, and alive
    return _process_age(pid) > time.time() - written - TICK


def _read(path: Path) -> bytes:
    """Read a lock file; a link, or a pipe without a writer, is no lock."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        return os.read(descriptor, LONGEST)
    finally:
        os.close(descriptor)


LONGEST = 4096
"""Number of bytes that poise reads of a lock file."""

TICK = 2.0
"""Seconds by which process start times and file times may differ."""


def _process_age(pid: int) -> float:
    """Return the seconds since a process started; infinite if unknown."""
    try:
        start = (
            Path(f"/proc/{pid}/stat")
            .read_text(encoding="utf-8")
            .rpartition(")")[2]
            .split()[19]
        )
        uptime = Path("/proc/uptime").read_text(encoding="utf-8").split()[0]
        return float(uptime) - int(start) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return float("inf")


def _process_name(text: str) -> str:
    try:
        holder = json.loads(text)
        return f"process {holder['pid']} on {holder['host']}"
    except (ValueError, KeyError, TypeError):
        return "another process"
