"""`Ledger`: records and models of a run; a crash never loses a recorded round."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from poise.core.curvature import Curvature
from poise.core.errors import LedgerError
from poise.core.sensitivity import Psi, recorded_groups
from poise.core.types import Record
from poise.ledger import client_states, models, rows, schema
from poise.ledger.files import REQUEST, hint, write_whole
from poise.ledger.lock import Lock
from poise.ledger.models import FileStore, MemoryStore, ModelStore
from poise.ledger.retention import Retention

if TYPE_CHECKING:
    from poise.core.vectors import Stack, Vector

DATABASE = "ledger.sqlite"
MODELS = "models"
LOCK = "lock"
EXPERIMENT = "experiment.toml"


class Ledger:
    """The records and models of one run.

    ``append`` first writes the model, then commits the record in one transaction:
    whenever a process dies, the ledger ends with a whole round whose model exists.
    """

    def __init__(self, path: Path | None, writing: bool) -> None:
        self.path = path
        self.store: ModelStore = MemoryStore()
        if path is not None:
            self.store = FileStore(path / MODELS)
        self._rule: Retention | None = None
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
                path.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise LedgerError(f"cannot make {path}: {error.strerror}") from error
        ledger = cls(path, writing=True)
        try:
            if path is not None:
                _refuse_taken(path)  # another process may have had the lock before
                # The experiment comes first, because `resume` needs nothing else.
                write_whole(path / EXPERIMENT, experiment.encode())
            ledger.connect()
            ledger._begin(meta, arrays)
        except BaseException:
            ledger.close()
            raise
        return ledger

    def _begin(
        self,
        meta: Mapping[str, Any],
        arrays: Mapping[str, NDArray[Any]],
        entries: Sequence[rows.LedgerEntry] = (),
    ) -> None:
        """Make and fill the tables in one transaction: no ledger lacks metadata."""
        with self.guard():
            if self.path is not None:
                schema.write_ahead(self.database)
            with self._transaction():
                for statement in schema.TABLES.split(";"):
                    self.database.execute(statement)
                pairs = {"schema": schema.VERSION, **meta}
                self.database.executemany(
                    "INSERT INTO meta VALUES (?, ?)",
                    [(k, str(v)) for k, v in pairs.items()],
                )
                self.database.executemany(
                    "INSERT INTO arrays VALUES (?, ?, ?, ?)", _array_rows(arrays)
                )
                for entry in entries:
                    rows.insert(self.database, *entry)

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
        digest = self.store.put(models.name(0), {"theta": theta})
        with self.guard(), self._transaction():
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
        """Store a record durably, with model, server state, client states, updates."""
        after = models.name(record.index + 1)
        hashes = rows.Hashes(
            model=self.store.put(after, {"theta": theta}),
            state=self.store.put(f"{after}.state", server) if server else "",
            clients=client_states.put(self.store, record.index + 1, states or {}),
            updates=self._put_updates(record.index, updates),
        )
        with self.guard(), self._transaction():
            digest = rows.digest_of(self.digest(), record, hashes)
            rows.insert(self.database, record, hashes, digest)
        self._drop_surplus(record, bool(hashes.clients))

    def _put_updates(self, n: int, updates: Stack | None) -> str:
        """Store the updates of a round and return their hash; empty without any."""
        if updates is None or not len(updates):
            return ""
        return self.store.put(models.updates(n), {models.UPDATES: updates})

    def digest(self) -> str:
        """Return the digest of the newest record; it covers all earlier records."""
        row = self.database.execute(
            "SELECT digest FROM rounds ORDER BY n DESC LIMIT 1"
        ).fetchone()
        if row:
            return str(row[0])
        return rows.GENESIS

    def rounds(self) -> int:
        """Return the number of recorded aggregations."""
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
        with self.guard():
            if self.meta().get(key) == str(value):
                return
        with self.guard(), self._transaction():
            self.database.execute(
                "INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, str(value))
            )

    def add_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Store arrays about the clients; arrays that are there stay unchanged."""
        with self.guard(), self._transaction():
            self.database.executemany(
                "INSERT OR IGNORE INTO arrays VALUES (?, ?, ?, ?)", _array_rows(arrays)
            )

    def set_experiment(self, text: str) -> None:
        """Replace the experiment of the run, for example to add rounds."""
        if self.path is not None:
            write_whole(self.path / EXPERIMENT, text.encode())
        self.set("experiment", text)

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
        """Move a damaged database aside and make a new one from the good records."""
        assert self.path is not None
        with self.guard():
            self.database.close()
            for suffix in ("-wal", "-shm", ""):
                old = self.path / f"{DATABASE}{suffix}"
                if old.exists():
                    old.rename(aside.with_name(aside.name + suffix))
        self.connect()
        self._begin(meta, arrays, entries)
        self._rule = None

    def close(self) -> None:
        """Close the database and release the lock."""
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
        """Return the retention rule; its first use replays the earlier rounds."""
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
                for n in range(self.rounds() - 1):
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
                branch, version = json.loads(file.read_bytes())["node"]
            except (OSError, ValueError, KeyError, TypeError):
                continue  # reading the request reports the damage
            if branch == 0:
                versions.append(version)
        return versions

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self.database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.database.execute("COMMIT")
        except BaseException:
            if self.database.in_transaction:
                self.database.execute("ROLLBACK")
            raise

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
    return (folder / DATABASE).exists() or (
        (folder / EXPERIMENT).exists() and (folder / LOCK).exists()
    )


def _refuse_taken(path: Path) -> None:
    if (path / DATABASE).exists():
        raise LedgerError(
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
