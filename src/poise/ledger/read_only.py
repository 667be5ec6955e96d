"""Open the database of a run in a folder in which nothing can be written."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from pathlib import Path

from poise.ledger.limits import LimitedConnection


def connect_read_only(path: Path) -> sqlite3.Connection:
    """Open a database without creating any file beside it.

    A reader of a database with write-ahead log creates two files, even if it changes
    nothing. Without a log, SQLite need not create them: the database is immutable. With
    records in the log, SQLite can read both if the index of the log (``-shm``) exists,
    as it does while another user's process writes. Otherwise a copy in memory takes
    their place.
    """
    log = path.with_name(f"{path.name}-wal")
    if not log.exists() or log.stat().st_size == 0:
        return _connect(path, "mode=ro&immutable=1")
    if not path.with_name(f"{path.name}-shm").exists():
        return _copied(path, log)
    connection = _connect(path, "mode=ro")
    try:
        connection.execute("SELECT count(*) FROM sqlite_master")
    except sqlite3.OperationalError:
        connection.close()
        return _copied(path, log)
    return connection


def _connect(path: Path, options: str) -> sqlite3.Connection:
    address = f"{path.resolve().as_uri()}?{options}"
    connection = sqlite3.connect(
        address, uri=True, isolation_level=None, factory=LimitedConnection
    )
    connection.limit(path)
    return connection


def _copied(path: Path, log: Path) -> sqlite3.Connection:
    """Return a copy in memory of a database and its log."""
    memory = sqlite3.connect(
        ":memory:", isolation_level=None, factory=LimitedConnection
    )
    memory.limit(path)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        shutil.copyfile(path, copy)
        shutil.copyfile(log, copy.with_name(log.name))
        source = sqlite3.connect(copy)
        try:
            source.backup(memory)
        finally:
            source.close()
    return memory


__all__ = ["connect_read_only"]
