"""The SQLite tables of a ledger, and upgrades of older schemas."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from poise.core.errors import LedgerError
from poise.ledger.foreign import check_folder
from poise.ledger.limits import LimitedConnection
from poise.ledger.read_only import connect_read_only

VERSION = 5
READABLE = (3, 4, VERSION)
ONE_PAGE = 4096  # bytes of a database without tables, at most

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE arrays (
    name TEXT PRIMARY KEY, dtype TEXT NOT NULL, shape TEXT NOT NULL, data BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE rounds (
    n INTEGER PRIMARY KEY, time REAL NOT NULL, bytes_up INTEGER NOT NULL,
    bytes_down INTEGER NOT NULL, in_flight TEXT NOT NULL, model TEXT NOT NULL,
    state TEXT NOT NULL, clients TEXT NOT NULL, digest TEXT NOT NULL,
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
    n INTEGER NOT NULL, row INTEGER NOT NULL, client INTEGER NOT NULL, version INTEGER NOT NULL,
    reason TEXT NOT NULL, occurrence INTEGER NOT NULL,
    PRIMARY KEY (n, row)
) WITHOUT ROWID;
CREATE TABLE measurements (
    n INTEGER NOT NULL, name TEXT NOT NULL, dtype TEXT NOT NULL, width INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (n, name)
) WITHOUT ROWID;
CREATE TABLE timings (n INTEGER PRIMARY KEY, seconds REAL NOT NULL);
CREATE TABLE events (
    id INTEGER PRIMARY KEY, at TEXT NOT NULL, n INTEGER NOT NULL, what TEXT NOT NULL
);
"""
PER_ROUND = (
    "rounds",
    "contributions",
    "metrics",
    "refusals",
    "measurements",
    "timings",
)
"""Tables with rows per round; `timings` and `events` are not part of the digest."""

TRANSIENT = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
}
"""Failures of the machine: the database may be readable once the cause is gone."""


def connect(path: Path | None, writing: bool) -> sqlite3.Connection:
    """Open the database of a run (None: in memory), without touching the file yet.

    The folder may come from somebody else: links and pipes are refused, the schema runs
    no functions, and statements end after a number of steps that fits the file's size.
    """
    if path is None:
        connection = sqlite3.connect(":memory:", isolation_level=None)
    else:
        check_folder(path.parent, writing=writing)
        connection = _connect_file(path, writing)
    connection.execute("PRAGMA foreign_keys = ON")
    if path is not None:
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA busy_timeout = 10000")
        if not writing:
            connection.execute("PRAGMA query_only = ON")
    return connection


def _connect_file(path: Path, writing: bool) -> sqlite3.Connection:
    if not writing and not os.access(path.parent, os.W_OK):
        connection = connect_read_only(path)
    else:
        connection = sqlite3.connect(
            path, isolation_level=None, factory=LimitedConnection
        )
        connection.limit(path)
    return connection


def write_ahead(connection: sqlite3.Connection) -> None:
    """Switch to write-ahead logging: readers do not wait, and processes may die.

    Each commit waits for the disk, so that a power cut loses no committed round.
    """
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")


def merge_log(connection: sqlite3.Connection) -> sqlite3.Error | None:
    """Merge the log into the file, which closing does not do while others read the run.

    Return the error of a full disk, or of a damaged or closed database: the log keeps
    all rounds.
    """
    try:
        connection.execute("PRAGMA busy_timeout = 1000")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except sqlite3.Error as error:
        return error
    return None


def is_damage(error: sqlite3.Error) -> bool:
    """Whether an error means a damaged database, and not a failure of the machine."""
    return (
        getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        not in TRANSIENT
    )


def check_version(connection: sqlite3.Connection, path: Path | None) -> None:
    """Raise if this poise cannot read a ledger; rename the tables of older ones."""
    _refuse_programs(connection, path)
    row = connection.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()
    version = row[0] if row else "none"
    if version not in map(str, READABLE):
        readable = f"{READABLE[0]} to {READABLE[-1]}"
        raise LedgerError(
            (
                f"{path} has schema version {version}, this poise reads versions "
                f"{readable}"
            ),
            "use the version of poise that wrote it",
        )
    if version != str(VERSION) and "readings" in _tables(connection):
        (read_only,) = connection.execute("PRAGMA query_only").fetchone()
        # a temporary view changes nothing on disk
        connection.execute("PRAGMA query_only = OFF")
        connection.execute(
            "CREATE TEMP VIEW IF NOT EXISTS measurements AS SELECT * FROM main.readings"
        )
        connection.execute(f"PRAGMA query_only = {read_only}")


def has_tables(path: Path) -> bool:
    """Whether a database has any table: a full disk may leave one without."""
    try:
        with closing(connect(path, writing=False)) as connection:
            return bool(_tables(connection))
    except (sqlite3.Error, LedgerError):
        return True  # damaged or no regular file: readers say what is wrong with it


def _refuse_programs(connection: sqlite3.Connection, path: Path | None) -> None:
    """Raise where a ledger holds more than tables of stored values.

    poise makes no views, triggers, virtual tables or generated columns. Reading them
    would run what somebody else wrote, possibly without end.
    """
    rows = connection.execute(
        "SELECT type, name, sql FROM sqlite_master LIMIT ?", (MOST_ENTRIES + 1,)
    ).fetchall()
    if len(rows) > MOST_ENTRIES:
        raise _foreign(path, f"more than {MOST_ENTRIES} tables")
    for kind, name, text in rows:
        if kind == "index" and str(name).startswith("sqlite_autoindex_"):
            continue
        if kind != "table":
            raise _foreign(path, f"the {kind} {name!r}")
        if str(text).lstrip().upper().startswith("CREATE VIRTUAL"):
            raise _foreign(path, f"the virtual table {name!r}")
    query = (
        "SELECT t.name, c.name FROM sqlite_master t, pragma_table_xinfo(t.name) c "
        "WHERE t.type = 'table' AND c.hidden > 0 LIMIT 1"
    )
    for table, column in connection.execute(query):
        raise _foreign(path, f"the generated column {column!r} of {table!r}")


MOST_ENTRIES = 100
"""Maximum number of tables and indices of a ledger; poise makes fewer than 20."""


def _foreign(path: Path | None, what: str) -> LedgerError:
    return LedgerError(
        f"{path} has {what}, which no ledger of poise has",
        "poise did not write this file; use the original",
    )


def _tables(connection: sqlite3.Connection) -> set[str]:
    query = "SELECT name FROM sqlite_master WHERE type = 'table'"
    return {name for (name,) in connection.execute(query)}


def upgrade(connection: sqlite3.Connection) -> None:
    """Upgrade a ledger of an older schema before poise writes to it.

    Schema 3 had no hash of a round's updates. Schemas 3 and 4 called the table
    `measurements` `readings`.
    """
    columns = {row[1] for row in connection.execute("PRAGMA table_info(rounds)")}
    old_table = "readings" in _tables(connection)
    if not columns or ("updates" in columns and not old_table):
        return
    connection.execute("BEGIN IMMEDIATE")
    if "updates" not in columns:
        connection.execute(
            "ALTER TABLE rounds ADD COLUMN updates TEXT NOT NULL DEFAULT ''"
        )
    if old_table:
        connection.execute("DROP VIEW IF EXISTS temp.measurements")
        connection.execute("ALTER TABLE readings RENAME TO measurements")
    connection.execute(
        "UPDATE meta SET value = ? WHERE key = 'schema'", (str(VERSION),)
    )
    connection.execute("COMMIT")
