"""The tables of a ledger."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from poise.core.errors import LedgerError

VERSION = 4
READABLE = (3, VERSION)

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE arrays (name TEXT PRIMARY KEY, dtype TEXT NOT NULL, shape TEXT NOT NULL, data BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE rounds (
    n INTEGER PRIMARY KEY, time REAL NOT NULL, bytes_up INTEGER NOT NULL, bytes_down INTEGER NOT NULL,
    in_flight TEXT NOT NULL, model TEXT NOT NULL, state TEXT NOT NULL, clients TEXT NOT NULL, digest TEXT NOT NULL,
    updates TEXT NOT NULL DEFAULT ''
);
CREATE TABLE contributions (
    n INTEGER NOT NULL, row INTEGER NOT NULL, client INTEGER NOT NULL, version INTEGER NOT NULL,
    occurrence INTEGER NOT NULL, base REAL NOT NULL, coefficient REAL NOT NULL, norm REAL NOT NULL,
    samples INTEGER NOT NULL, steps INTEGER NOT NULL, loss_before REAL, loss_after REAL,
    PRIMARY KEY (n, row)
) WITHOUT ROWID;
CREATE TABLE metrics (
    n INTEGER NOT NULL, name TEXT NOT NULL, value REAL, per_client BLOB, PRIMARY KEY (n, name)
) WITHOUT ROWID;
CREATE TABLE refusals (
    n INTEGER NOT NULL, row INTEGER NOT NULL, client INTEGER NOT NULL, version INTEGER NOT NULL, reason TEXT NOT NULL,
    occurrence INTEGER NOT NULL,
    PRIMARY KEY (n, row)
) WITHOUT ROWID;
CREATE TABLE readings (
    n INTEGER NOT NULL, name TEXT NOT NULL, dtype TEXT NOT NULL, width INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (n, name)
) WITHOUT ROWID;
CREATE TABLE timings (n INTEGER PRIMARY KEY, seconds REAL NOT NULL);
CREATE TABLE events (id INTEGER PRIMARY KEY, at TEXT NOT NULL, n INTEGER NOT NULL, what TEXT NOT NULL);
"""
PER_ROUND = ("rounds", "contributions", "metrics", "refusals", "readings", "timings")
"""`timings` and `events` tell of the process, not of the experiment: they are no part of the digest."""


TRANSIENT = {
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY,
}  # fmt: skip
"""Failures of the machine: the database may be whole, and can be read when the cause is gone."""


def connect(path: Path | None, writing: bool) -> sqlite3.Connection:
    """Open the database of a run; None is a database in memory. The file itself is not touched yet."""
    connection = sqlite3.connect(":memory:" if path is None else path, isolation_level=None)
    connection.execute("PRAGMA foreign_keys = ON")
    if path is not None:
        connection.execute("PRAGMA busy_timeout = 10000")
        if not writing:
            connection.execute("PRAGMA query_only = ON")
    return connection


def write_ahead(connection: sqlite3.Connection) -> None:
    """Records go to a log first: readers do not wait, and a process may die at any moment."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")


def is_damage(error: sqlite3.Error) -> bool:
    """Whether the database itself is wrong, and not the machine it lies on."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF not in TRANSIENT


def check_version(connection: sqlite3.Connection, path: Path | None) -> None:
    """Refuse a ledger that another version of poise wrote."""
    row = connection.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()
    found = row[0] if row else "none"
    if found not in map(str, READABLE):
        raise LedgerError(
            f"{path} has schema version {found}, this poise reads {VERSION}", "use the poise that wrote it"
        )


def upgrade(connection: sqlite3.Connection) -> None:
    """Before writing to a ledger of schema 3: rounds get the hash of their updates, empty for those that are there."""
    columns = {row[1] for row in connection.execute("PRAGMA table_info(rounds)")}
    if columns and "updates" not in columns:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ALTER TABLE rounds ADD COLUMN updates TEXT NOT NULL DEFAULT ''")
        connection.execute("UPDATE meta SET value = ? WHERE key = 'schema'", (str(VERSION),))
        connection.execute("COMMIT")
