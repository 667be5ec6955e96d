"""The writing side of a run: append a record, keep its model, never lose what is there."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from poise.core.errors import LedgerError
from poise.core.sensitivity import Psi
from poise.core.types import Record
from poise.ledger import client_states, models, rows, schema
from poise.ledger.files import hint, write_whole
from poise.ledger.lock import Lock
from poise.ledger.models import FileStore, MemoryStore, ModelStore
from poise.ledger.retention import Retention

if TYPE_CHECKING:
    from poise.core.vectors import Stack, Vector

DATABASE, MODELS, LOCK, EXPERIMENT = "ledger.sqlite", "models", "lock", "experiment.toml"


class Ledger:
    """The records and models of one run.

    ``append`` first writes the model, then commits the record in one transaction: whatever moment a
    process dies at, the ledger ends with a whole round whose model is there.
    """

    def __init__(self, path: Path | None, writing: bool) -> None:
        self.path = path
        self.store: ModelStore = MemoryStore() if path is None else FileStore(path / MODELS)
        self._rule: Retention | None = None
        self.own_files = client_states.ClientStateFiles()
        self._lock = Lock(path / LOCK) if path is not None and writing else None
        if self._lock is not None:
            self._lock.acquire()

    def connect(self) -> None:
        """Open the database, which makes the file where there is none."""
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
        """Begin a new run; a folder that holds one already is refused."""
        if path is not None:
            _refuse_taken(path)
            try:
                path.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise LedgerError(f"cannot make {path}: {error.strerror}") from error
        ledger = cls(path, writing=True)
        try:
            if path is not None:
                _refuse_taken(path)  # by someone who was quicker to take the lock
                write_whole(
                    path / EXPERIMENT, experiment.encode()
                )  # first: `resume` needs nothing else
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
        entries: Sequence[tuple[Record, rows.Hashes, str]] = (),
    ) -> None:
        """Make the tables and fill them, in one transaction: a ledger has its facts or does not
        exist.
        """
        with self.guard():
            if self.path is not None:
                schema.write_ahead(self.database)
            with self._transaction():
                for statement in schema.TABLES.split(";"):
                    self.database.execute(statement)
                pairs = {"schema": schema.VERSION, **meta}
                self.database.executemany(
                    "INSERT INTO meta VALUES (?, ?)", [(k, str(v)) for k, v in pairs.items()]
                )
                self.database.executemany(
                    "INSERT INTO arrays VALUES (?, ?, ?, ?)", _array_rows(arrays)
                )
                for record, hashes, digest in entries:
                    rows.insert(self.database, record, hashes, digest)

    @classmethod
    def open(cls, path: Path, writing: bool = False) -> Ledger:
        """Open an existing run, for reading or (with its lock) for going on."""
        if not (path / DATABASE).exists():
            raise LedgerError(f"{path} is not a run folder: it has no {DATABASE}")
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
        """Keep the initial model."""
        digest = self.store.put(models.name(0), {"theta": theta})
        with self.guard(), self._transaction():
            self.database.execute("INSERT OR REPLACE INTO meta VALUES ('initial', ?)", (digest,))

    def append(
        self,
        record: Record,
        theta: Vector,
        server: Mapping[str, Vector],
        kept: Mapping[int, Mapping[str, Vector]] | None = None,
        updates: Stack | None = None,
    ) -> None:
        """Keep a record, the model it led to, the server's state, what the clients keep and the
        updates, durably.
        """
        after = models.name(record.index + 1)
        model = self.store.put(after, {"theta": theta})
        state = self.store.put(f"{after}.state", server) if server else ""
        mine = client_states.put(self.store, record.index + 1, kept or {})
        stack = {} if updates is None or not len(updates) else {models.UPDATES: updates}
        hashes = rows.Hashes(
            model, state, mine, self.store.put(models.updates(record.index), stack) if stack else ""
        )
        with self.guard(), self._transaction():
            rows.insert(
                self.database, record, hashes, rows.digest_of(self.digest(), record, hashes)
            )
        self._drop_surplus(record, bool(hashes.clients))

    def digest(self) -> str:
        """The digest of the newest record, which vouches for all before it."""
        row = self.database.execute("SELECT digest FROM rounds ORDER BY n DESC LIMIT 1").fetchone()
        return str(row[0]) if row else rows.GENESIS

    def rounds(self) -> int:
        """Number of aggregations recorded."""
        row = self.database.execute("SELECT max(n) FROM rounds").fetchone()
        return 0 if row[0] is None else int(row[0]) + 1

    def meta(self) -> dict[str, str]:
        """Facts about the run."""
        return dict(self.database.execute("SELECT key, value FROM meta"))

    def array(self, name: str) -> NDArray[Any] | None:
        """A table of facts about the clients."""
        row = self.database.execute(
            "SELECT dtype, shape, data FROM arrays WHERE name = ?", (name,)
        ).fetchone()
        if row is None:
            return None
        return np.frombuffer(row[2], dtype=row[0]).reshape([int(k) for k in row[1].split(",") if k])

    def event(self, what: str) -> None:
        """Note something about the process (resumed, stopped, went back)."""
        with self.guard(), self._transaction():
            now = datetime.now(UTC).isoformat(timespec="seconds")
            self.database.execute(
                "INSERT INTO events (at, n, what) VALUES (?, ?, ?)", (now, self.rounds(), what)
            )

    def events(self) -> list[str]:
        """What was noted about the process, in order."""
        with self.guard():
            return [
                what for (what,) in self.database.execute("SELECT what FROM events ORDER BY id")
            ]

    def set(self, key: str, value: object) -> None:
        """Note a fact about the run; what is so already is not written again, which would change
        the file.
        """
        with self.guard():
            if self.meta().get(key) == str(value):
                return
        with self.guard(), self._transaction():
            self.database.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, str(value)))

    def add_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Keep facts about the clients that the ledger does not have yet; those that it has stay as
        they are.
        """
        with self.guard(), self._transaction():
            self.database.executemany(
                "INSERT OR IGNORE INTO arrays VALUES (?, ?, ?, ?)", _array_rows(arrays)
            )

    def set_experiment(self, text: str) -> None:
        """Note that the run goes on as another experiment than it began, for instance with more
        rounds.
        """
        if self.path is not None:
            write_whole(self.path / EXPERIMENT, text.encode())
        self.set("experiment", text)

    def take_back(self, index: int) -> None:
        """Drop the records from ``index`` on, to be made again."""
        with self.guard(), self._transaction():
            for table in schema.PER_ROUND:
                self.database.execute(f"DELETE FROM {table} WHERE n >= ?", (index,))
        self._rule = None

    def replace_database(
        self,
        aside: Path,
        meta: Mapping[str, Any],
        arrays: Mapping[str, NDArray[Any]],
        entries: Sequence[tuple[Record, rows.Hashes, str]],
    ) -> None:
        """Move a damaged database aside and make a new one of the records that are good."""
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
        """Close the database and let go of the lock."""
        if hasattr(self, "database"):
            self.database.close()
        if self._lock is not None:
            self._lock.release()

    def _drop_surplus(self, record: Record, keeps: bool) -> None:
        """Delete what the retention rule no longer needs."""
        for version in self._retention().surplus(record):
            self.store.drop(models.name(version))
        self.store.drop(f"{models.name(record.index - 1)}.state")
        for version in self.own_files.surplus(record) if keeps else ():
            self.store.drop(client_states.key(version))

    def _retention(self) -> Retention:
        """The rule, with its memory of earlier rounds read from the ledger when it is first
        needed.
        """
        if self._rule is None:
            facts = self.meta()
            fading, rate = float(facts.get("fading", 1.0)), float(facts.get("rate", 1.0))
            psi = Psi(fading, importance=self.array("optimism"), lr=rate)
            self._rule = Retention(
                facts.get("keep", "last"),  # type: ignore[arg-type]
                models.versions(self.store),
                float(facts.get("limit", 0.0)),
                psi,
            )
            for n in range(self.rounds() - 1 if self._rule.keep == "unlearnable" else 0):
                found = rows.select(self.database, n)
                if found is not None:
                    self._rule.follow(found[0])
        return self._rule

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
        """Failures of the disk or the database, by the name of the file."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> LedgerError:
        file = self.path and self.path / DATABASE
        damaged = isinstance(error, sqlite3.Error) and schema.is_damage(error)
        what_to_do = (
            "`poise resume` goes back to the last good round" if damaged else hint(file, error)
        )
        return LedgerError(f"{file or 'the ledger in memory'}: {error}", what_to_do)


def begun(folder: Path) -> bool:
    """Whether a run began in a folder; killed in its first moments, it has no ledger yet."""
    return (folder / DATABASE).exists() or (
        (folder / EXPERIMENT).exists() and (folder / LOCK).exists()
    )


def _refuse_taken(path: Path) -> None:
    if (path / DATABASE).exists():
        raise LedgerError(
            f"{path} holds a run already", "choose another folder, or `poise resume` that run"
        )


def _array_rows(arrays: Mapping[str, NDArray[Any]]) -> list[tuple[str, str, str, bytes]]:
    """Arrays as the table ``arrays`` holds them: name, number type, shape and bytes."""
    return [
        (name, a.dtype.str, ",".join(map(str, a.shape)), np.ascontiguousarray(a).tobytes())
        for name, a in arrays.items()
    ]
