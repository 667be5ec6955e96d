"""One writer per run folder."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from pathlib import Path
from typing import IO

from poise.core.errors import RunLocked
from poise.ledger.files import refused


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
            raise refused(self.path, error) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(file.fileno(), 0)
            os.write(file.fileno(), json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode())
        except BlockingIOError as error:
            file.seek(0)
            holder = _holder(file.read())
            file.close()
            raise RunLocked(
                f"{self.path.parent} is being written by {holder}", "wait for it, or stop that process first"
            ) from error
        except OSError as error:
            file.close()
            raise refused(self.path, error) from error
        self._file = file

    def release(self) -> None:
        """Let go of the lock."""
        if self._file is not None:
            self._file.seek(0)
            self._file.truncate()
            self._file.close()
            self._file = None


def _holder(text: str) -> str:
    try:
        who = json.loads(text)
        return f"process {who['pid']} on {who['host']}"
    except (ValueError, KeyError, TypeError):
        return "another process"
