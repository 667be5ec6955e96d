"""`Ledger`: records and models of a run; a crash never loses a recorded round."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from poise.core.curvature import Curvature
from poise.core.disk import create, flush_folder, make_folder
from poise.core.errors import LedgerError, RunTaken
from poise.core.sensitivity import Psi, recorded_groups
from poise.core.types import Record
from poise.ledger import client_states, models, rows, schema
from poise.ledger.files import (
    REQUEST,
    hint,
    no_room,
    refuse_link,
    write_whole,
)
from poise.ledger.foreign import read_json
from poise.ledger.lock import Lock
from poise.ledger.models import FileStore, MemoryStore, ModelStore
from poise.ledger.retention import Retention

if TYPE_CHECKING:
    from poise.core.vectors import Stack, Vector

TENSORS = "tensors"
"""The entry with names and shapes of the model's tensors; model files have it, too."""

DATABASE = "ledger.sqlite"
MODELS = "models"
LOCK = "lock"
EXPERIMENT = "experiment.toml"
BEGAN = "began"
"""The entry of the metadata with the time when the run began, in UTC."""
ENDING = "ending"
"""The entry of the metadata with the rule that ended a run early."""
SUFFIXES = ("-wal", "-shm", "")  # of the files of a database

GROUPED = 0.2
"""Seconds of simulated rounds that the ledger may flush together."""

LARGEST_GROUP = 2**26
"""Number of bytes of models that may wait for a flush."""


class End(NamedTuple):
    """Where a ledger ends: its number of rounds, and the digest of the last one."""

    rounds: int
    digest: str


class Ledger:
    """The records and models of one run.

    ``flush`` first puts the models on the disk, then commits the records that name them
    in one transaction: after a kill or a power cut, the ledger ends with a whole round
    whose model exists. ``append`` flushes after every round, or, in a simulation, after
    ``flush_every`` seconds of rounds: rounds that a cut loses are computed again.
    """

    def __init__(self, path: Path | None, writing: bool) -> None:
        self.path = path
        self.flush_every = GROUPED
        self._waiting: list[rows.LedgerEntry] = []  # rounds that are not flushed yet
        self._flushed = time.monotonic()
        self._end: End | None = None  # of the rounds that this process wrote or read
        self._file: os.stat_result | None = None  # of the database
        self.store: ModelStore = MemoryStore()
        if path is not None:
            for name in (MODELS, *(f"{DATABASE}{suffix}" for suffix in SUFFIXES)):
                refuse_link(path / name)
            self.store = FileStore(path / MODELS)
        self._rule: Retention | None = None
        self._tensors: str | None = None  # names and shapes; read at first use
        self.state_files = client_states.ClientStateFiles()
        self._lock: Lock | None = None
        if path is not None and writing:
            self._lock = Lock(path / LOCK)
            self._lock.acquire()

    def connect(self) -> None:
        """Open the database; creates the file if it does not exist."""
        with self.guard():
            self.database = schema.connect(
                self.path and self.path / DATABASE, writing=self._lock is not None
            )

    @classmethod
    def create(
        cls,
        path: Path | None,
        meta: Mapping[str, Any],
        arrays: Mapping[str, NDArray[Any]],
        experiment: str = "",
    ) -> Ledger:
        """Begin a new run; raise where the folder holds a run already."""
        if path is not None:
            _refuse_taken(path)
            try:
                make_folder(path)
            except OSError as error:
                remedy = ""
                if no_room(error):
                    remedy = "free some space, then repeat the command"
                message = f"cannot make {path}: {error.strerror}"
                raise LedgerError(message, remedy) from error
        ledger = cls(path, writing=True)
        try:
            if path is not None:
                _refuse_taken(path)  # another process may have had the lock before
            ledger.connect()
            ledger._begin(meta, arrays, experiment=experiment)
        except BaseException:
            ledger.close()
            raise
        return ledger

    def _begin(
        self,
        meta: Mapping[str, Any],
        arrays: Mapping[str, NDArray[Any]],
        entries: Sequence[rows.LedgerEntry] = (),
        experiment: str | None = None,
    ) -> None:
        """Make and fill the tables in one transaction: no ledger lacks metadata.

        The experiment is on the disk before the tables, because `resume` needs nothing
        else. It is written in the transaction: a second writer must not replace the
        experiment of the run that began first.
        """
        with self.guard():
            if self.path is not None:
                schema.write_ahead(self.database)
            with self._transaction(begins=True):
                if self.path is not None and experiment is not None:
                    write_whole(self.path / EXPERIMENT, experiment.encode())
                for statement in schema.TABLES.split(";"):
                    self.database.execute(statement)
                now = datetime.now(UTC).isoformat(timespec="seconds")
                pairs = {"schema": schema.VERSION, BEGAN: now, **meta}
                self.database.executemany(
                    "INSERT INTO meta VALUES (?, ?)",
                    [(k, str(v)) for k, v in pairs.items()],
                )
                self.database.executemany(
                    "INSERT INTO arrays VALUES (?, ?, ?, ?)", _array_rows(arrays)
                )
                for entry in entries:
                    rows.insert(self.database, *entry)
            self.own(entries)
            if self.path is not None:
                flush_folder(self.path)

    def own(self, entries: Sequence[rows.LedgerEntry]) -> None:
        """Continue after these rounds; `flush` refuses to write after any others."""
        self._end = End(0, rows.GENESIS)
        if entries:
            self._end = End(entries[-1].record.index + 1, entries[-1].digest)
        if self.path is not None:
            self._file = (self.path / DATABASE).stat()

    @classmethod
    def open(cls, path: Path, writing: bool = False) -> Ledger:
        """Open an existing run, to read it or (with its lock) to write to it."""
        if not (path / DATABASE).exists():
            raise LedgerError(
                f"{path} is not a run folder: it has no {DATABASE}",
                "name the folder of a run",
            )
        ledger = cls(path, writing)
        try:
            ledger.connect()
            with ledger.guard():
                schema.check_version(ledger.database, path / DATABASE)
                if writing:
                    schema.write_ahead(ledger.database)
                    schema.upgrade(ledger.database)
        except LedgerError:
            ledger.close()
            raise
        return ledger

    def start(self, theta: Vector) -> None:
        """Store the initial model."""
        digest = self.store.put(models.name(0), {"theta": theta}, self._header())
        with self.guard(), self._transaction():
            self.store.flush()
            self.database.execute(
                "INSERT OR REPLACE INTO meta VALUES ('initial', ?)", (digest,)
            )

    def append(
        self,
        record: Record,
        theta: Vector,
        server: Mapping[str, Vector],
        states: Mapping[int, Mapping[str, Vector]] | None = None,
        updates: Stack | None = None,
    ) -> None:
        """Take in a record with model, server state, client states and updates."""
        after = models.name(record.index + 1)
        hashes = rows.Hashes(
            model=self.store.put(after, {"theta": theta}, self._header()),
            state=self.store.put(f"{after}.state", server) if server else "",
            clients=client_states.put(self.store, record.index + 1, states or {}),
            updates=self._put_updates(record.index, updates),
        )
        digest = rows.digest_of(self.digest(), record, hashes)
        self._drop_surplus(record, bool(hashes.clients))
        self._waiting.append(rows.LedgerEntry(record, hashes, digest))
        elapsed = time.monotonic() - self._flushed
        if elapsed >= self.flush_every or self.store.waiting > LARGEST_GROUP:
            self.flush()

    def _header(self) -> dict[str, str] | None:
        """Return the header of model files: names and shapes of the model's tensors."""
        if self._tensors is None:
            with self.guard():
                self._tensors = self.meta().get(TENSORS, "")
        if self._tensors:
            return {TENSORS: self._tensors}
        return None

    def flush(self) -> None:
        """Put all rounds so far on the disk: first their files, then their records."""
        if self._waiting:
            entries = self._waiting
            self._waiting = []
            with self.guard(), self._transaction():
                self.store.flush()
                for entry in entries:
                    rows.insert(self.database, *entry)
            self._end = End(entries[-1].record.index + 1, entries[-1].digest)
            self.store.sweep()
        self._flushed = time.monotonic()

    def _put_updates(self, n: int, updates: Stack | None) -> str:
        """Store the updates of a round and return their hash; empty without any."""
        if updates is None or not len(updates):
            return ""
        return self.store.put(models.updates(n), {models.UPDATES: updates})

    def digest(self) -> str:
        """Return the digest of the newest record; it covers all earlier records."""
        if self._waiting:
            return self._waiting[-1].digest
        row = self.database.execute(
            "SELECT digest FROM rounds ORDER BY n DESC LIMIT 1"
        ).fetchone()
        if row:
            return str(row[0])
        return rows.GENESIS

    def durable_digest(self) -> str:
        """Write all records that wait, then return the digest."""
        self.flush()
        return self.digest()

    def rounds(self) -> int:
        """Return the number of aggregations."""
        if self._waiting:
            return self._waiting[-1].record.index + 1
        row = self.database.execute("SELECT max(n) FROM rounds").fetchone()
        if row[0] is None:
            return 0
        return int(row[0]) + 1

    def meta(self) -> dict[str, str]:
        """Return the metadata of the run."""
        return dict(self.database.execute("SELECT key, value FROM meta"))

    def array(self, name: str) -> NDArray[Any] | None:
        """Return an array of data about the clients; None if there is none."""
        row = self.database.execute(
            "SELECT dtype, shape, data FROM arrays WHERE name = ?", (name,)
        ).fetchone()
        if row is None:
            return None
        try:
            shape = [int(k) for k in row[1].split(",") if k]
            return np.frombuffer(row[2], dtype=row[0]).reshape(shape)
        except (AttributeError, TypeError, ValueError) as error:
            file = self.path and self.path / DATABASE
            raise LedgerError(
                f"{file or 'the ledger in memory'}: the array {name!r} cannot be read: "
                f"{error}",
                "restore the file from a backup",
            ) from error

    def event(self, text: str) -> None:
        """Record an event of the process (resumed, stopped, went back)."""
        self.flush()
        with self.guard(), self._transaction():
            now = datetime.now(UTC).isoformat(timespec="seconds")
            self.database.execute(
                "INSERT INTO events (at, n, what) VALUES (?, ?, ?)",
                (now, self.rounds(), text),
            )

    def events(self) -> list[str]:
        """Return the events of the process, in order."""
        query = "SELECT what FROM events ORDER BY id"
        with self.guard():
            return [text for (text,) in self.database.execute(query)]

    def set(self, key: str, value: object) -> None:
        """Record metadata of the run; equal values are not written again."""
        self.flush()
        with self.guard():
            if self.meta().get(key) == str(value):
                return
        with self.guard(), self._transaction():
            self.database.execute(
                "INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, str(value))
            )
        self._tensors = None

    def add_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Store arrays about the clients; arrays that are there stay unchanged."""
        with self.guard(), self._transaction():
            self.database.executemany(
                "INSERT OR IGNORE INTO arrays VALUES (?, ?, ?, ?)", _array_rows(arrays)
            )

    def set_experiment(self, text: str) -> None:
        """Replace the experiment of the run, for example to add rounds."""
        self.set("experiment", text)
        if self.path is not None:
            write_whole(self.path / EXPERIMENT, text.encode())

    def copy_database(self, aside: Path) -> None:
        """Copy the database to a new file beside it; raise where the name is taken."""
        with self.guard():
            os.close(create(aside))  # SQLite would follow a link with this name
            with closing(sqlite3.connect(aside)) as copy:
                self.database.backup(copy)
            flush_folder(aside.parent)

    def drop_rounds(self, index: int) -> None:
        """Drop the records from ``index`` on; the run makes them again."""
        with self.guard(), self._transaction():
            for table in schema.PER_ROUND:
                self.database.execute(f"DELETE FROM {table} WHERE n >= ?", (index,))
        self._rule = None

    def replace_database(
        self,
        aside: Path,
        *,
        meta: Mapping[str, Any],
        arrays: Mapping[str, NDArray[Any]],
        entries: Sequence[rows.LedgerEntry],
    ) -> None:
        """Move a database aside and make a new one from the good records."""
        assert self.path is not None
        with self.guard():
            self.database.close()
            for suffix in SUFFIXES:
                old = self.path / f"{DATABASE}{suffix}"
                if os.path.lexists(old):
                    old.rename(aside.with_name(aside.name + suffix))
            flush_folder(self.path)
        self.connect()
        self._begin(meta, arrays, entries)
        self._rule = None

    def close(self) -> None:
        """Flush the last rounds, close the database and release the lock."""
        try:
            self.flush()
        finally:
            if hasattr(self, "database"):
                if self.path is not None and self._lock is not None:
                    schema.merge_log(self.database)
                self.database.close()
            if self._lock is not None:
                self._lock.release()

    def _drop_surplus(self, record: Record, has_states: bool) -> None:
        """Delete the files that are no longer needed after this record."""
        for version in self._retention().surplus(record):
            self.store.drop(models.name(version))
        self.store.drop(f"{models.name(record.index - 1)}.state")
        if has_states:
            for version in self.state_files.surplus(record):
                self.store.drop(client_states.key(version))

    def _retention(self) -> Retention:
        """Return the retention rule; its first use replays the rounds on the disk."""
        if self._rule is None:
            meta = self.meta()
            known = Curvature.recorded(meta)
            psi = Psi(
                float(meta.get("fading", 1.0)),
                importance=self.array("optimism"),
                lr=float(meta.get("rate", 1.0)),
                groups=recorded_groups(meta),
                one_hessian=known is not None and known.exact,
            )
            self._rule = Retention(
                meta.get("keep", "last"),  # type: ignore[arg-type]
                models.versions(self.store),
                limit=float(meta.get("limit", 0.0)),
                psi=psi,
                needed=self._restart_versions(),
            )
            if self._rule.keep == "unlearnable":
                for n in range(self.rounds()):
                    entry = rows.select(self.database, n)
                    if entry is not None:
                        self._rule.follow(entry.record)
        return self._rule

    def _restart_versions(self) -> list[int]:
        """Return the versions of this training from which unlearning requests restarted."""
        versions = []
        requests = [] if self.path is None else self.path.glob(f"*/*/{REQUEST}")
        for file in requests:
            try:
                branch, version = read_json(file, below=2)["node"]
            except (OSError, ValueError, KeyError, TypeError):
                continue  # reading the request reports the damage
            if branch == 0 and type(version) is int:
                versions.append(version)
        return versions

    @contextmanager
    def _transaction(self, begins: bool = False) -> Iterator[None]:
        """Write in one transaction, unless another process wrote to the run meanwhile."""
        self.database.execute("BEGIN IMMEDIATE")
        try:
            if begins:
                self._refuse_tables()
            else:
                self._refuse_other_writer()
            yield
            self.database.execute("COMMIT")
        except BaseException:
            self.store.discard()
            if self.database.in_transaction:
                self.database.execute("ROLLBACK")
            raise

    def _refuse_tables(self) -> None:
        """Raise where another process has begun a run in this database."""
        if self.database.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
            raise _taken(self.path)

    def _refuse_other_writer(self) -> None:
        """Raise where the ledger does not end as this process wrote or read it.

        The lock normally keeps a second writer out. It cannot where somebody deletes
        the lock file, or where a network mount ignores locks.
        """
        query = "SELECT n + 1, digest FROM rounds ORDER BY n DESC LIMIT 1"
        row = self.database.execute(query).fetchone()
        end = End(*row) if row else End(0, rows.GENESIS)
        if self._end is None:
            self._end = end
        moved = self._file is not None and not self._is_in_place(self._file)
        if moved or end != self._end:
            raise self.taken_since(self._end.rounds)

    def taken_since(self, rounds: int) -> RunTaken:
        """Return the error for a run in which another process has written."""
        return RunTaken(
            f"another process has written to {self.path} since round {rounds}: this "
            "process stops and leaves the run to it",
            "let only one process write to a run, and keep its lock file",
        )

    def _is_in_place(self, file: os.stat_result) -> bool:
        """Whether the open database is still the one in the run folder."""
        assert self.path is not None
        try:
            return os.path.samestat(file, (self.path / DATABASE).stat())
        except FileNotFoundError:
            return False

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Turn failures of the disk or the database into errors that name the file."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> LedgerError:
        file = self.path and self.path / DATABASE
        remedy = hint(file, error)
        if isinstance(error, sqlite3.Error) and schema.is_damage(error):
            remedy = "`poise resume` goes back to the last good round"
        return LedgerError(f"{file or 'the ledger in memory'}: {error}", remedy)


def begun(folder: Path) -> bool:
    """Whether a run began in a folder; one killed at once has only a lock."""
    if has_ledger(folder):
        return True
    return has_experiment(folder) and (folder / LOCK).exists()


def has_ledger(folder: Path) -> bool:
    """Whether a folder has a ledger; one without tables counts as missing."""
    try:
        size = (folder / DATABASE).stat().st_size
    except OSError:
        return False
    return size > schema.ONE_PAGE or schema.has_tables(folder / DATABASE)


def has_experiment(folder: Path) -> bool:
    """Whether a folder has an experiment file; an empty one counts as missing."""
    try:
        return (folder / EXPERIMENT).stat().st_size > 0
    except OSError:
        return False


def _refuse_taken(path: Path) -> None:
    if has_ledger(path):
        raise _taken(path)


def _taken(path: Path | None) -> LedgerError:
    return LedgerError(
        f"{path} holds a run already",
        "choose another folder, or `poise resume` that run",
    )


def _array_rows(
    arrays: Mapping[str, NDArray[Any]],
) -> list[tuple[str, str, str, bytes]]:
    """Return arrays as rows of ``arrays``: name, number type, shape and bytes."""
    table = []
    for name, array in arrays.items():
        shape = ",".join(map(str, array.shape))
        table.append(
            (name, array.dtype.str, shape, np.ascontiguousarray(array).tobytes())
        )
    return table
