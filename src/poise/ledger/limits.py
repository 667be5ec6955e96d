"""A database connection whose statements end after a limited number of steps."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

PER_TICK = 100_000
"""Steps of SQLite's machine between two calls of the progress handler: about 1 ms."""

STEPS = 2_000_000
"""Steps that a statement may take on a ledger of any size."""

STEPS_PER_BYTE = 16
"""Further steps for each byte of the file; reading a whole table takes fewer than 2."""

LONGEST = 2**28
"""Maximum size of a text, blob or row, in bytes."""


class LimitedConnection(sqlite3.Connection):
    """Ends statements that take more steps than any statement on a sound file of its size.

    Pages of a crafted file can refer to each other in circles, so that reading one table
    never ends. SQLite then reports the statement as interrupted.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._ticks = 0

    def limit(self, file: Path) -> None:
        """Set the limits for a file; its size is read when a statement takes long."""
        most = 0

        def tick() -> bool:
            nonlocal most
            self._ticks += 1
            if self._ticks > most:  # the first long statement, or the file has grown
                most = (STEPS + STEPS_PER_BYTE * _size(file)) // PER_TICK
            return self._ticks > most

        self.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
        self.set_progress_handler(tick, PER_TICK)

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        """Execute a statement; its steps are counted from 0."""
        self._ticks = 0
        return super().execute(*arguments)

    def executemany(self, *arguments: Any) -> sqlite3.Cursor:
        """Execute a statement many times; its steps are counted from 0."""
        self._ticks = 0
        return super().executemany(*arguments)


def _size(file: Path) -> int:
    """Return the size of a database and its log."""
    size = 0
    for path in (file, file.with_name(f"{file.name}-wal")):
        try:
            size += path.stat().st_size
        except OSError:
            continue  # without a log, or deleted
    return size
