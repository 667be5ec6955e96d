"""`LedgerReader`: the facts about a run, read from its ledger."""

from __future__ import annotations

import sqlite3
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from poise.core.client_names import client_number, recorded_names
from poise.core.directions import Directions
from poise.core.errors import LedgerError
from poise.core.sensitivity import Group, recorded_groups
from poise.core.types import Floats, Record
from poise.ledger import rows, schema
from poise.ledger.files import is_full
from poise.ledger.foreign import check_meta, read_text, readable
from poise.ledger.recovery import good_entries
from poise.ledger.store import DATABASE, EXPERIMENT, Ledger, has_experiment
from poise.results.experiment import ExperimentText
from poise.results.meta import RunMeta


class LedgerReader:
    """The facts about a run: its experiment, its clients, its events.

    Rounds before a damaged page of the ledger stay readable; ``damage`` describes the
    damage.
    """

    def __init__(self, ledger: Ledger) -> None:
        ledger.flush()
        self._ledger = ledger
        self.histories: Any = None  # the unlearning branches of a run in memory

    @property
    def path(self) -> Path | None:
        """The run folder; None for a run in memory."""
        return self._ledger.path

    @cached_property
    def meta(self) -> RunMeta:
        """Metadata of the run, as texts by name and as attributes: ``run.meta.seed``."""
        with readable(self._file), self._ledger.guard():
            meta = RunMeta(self._ledger.meta())
            check_meta(meta)
            return meta

    @property
    def ending(self) -> str:
        """Which rule ended the run before its last round; empty if none did."""
        return self.meta.ending

    @property
    def directions(self) -> Directions:
        """Whether large or small values of each metric are good."""
        return Directions.recorded(self.meta)

    def fact(self, key: str) -> str:
        """Return one entry of the metadata; raise if the ledger lacks it."""
        if key not in self.meta:
            raise LedgerError(
                f"{self._file} has no entry {key!r} in its metadata",
                "restore the file from a backup",
            )
        return self.meta[key]

    @property
    def _file(self) -> Path | str:
        return self.path / DATABASE if self.path else "the ledger in memory"

    @property
    def experiment(self) -> ExperimentText:
        """The experiment of the run: ``run.experiment.solver.lr``, or its ``text``."""
        if self.path is None or not has_experiment(self.path):
            return ExperimentText(self.fact("experiment"))
        file = self.path / EXPERIMENT
        with readable(file):
            return ExperimentText(read_text(file))

    @cached_property
    def rounds(self) -> int:
        """Number of readable aggregations, R."""
        database = self._ledger.database
        with self._ledger.guard():
            try:
                count, first, last = database.execute(
                    "SELECT count(*), min(n), max(n) FROM rounds"
                ).fetchone()
                database.execute(
                    "SELECT sum(client), sum(coefficient) FROM contributions"
                ).fetchone()
                database.execute(
                    "SELECT sum(value), sum(length(per_client)) FROM metrics"
                ).fetchone()
                if (count, first) == (0, None) or (first, last) == (0, count - 1):
                    return int(count)
            except sqlite3.Error as error:
                if not schema.is_damage(error):
                    raise
            return len(good_entries(database)[0])

    @cached_property
    def damage(self) -> str:
        """The problem of the first missing or altered round; empty if none."""
        with self._ledger.guard():
            return good_entries(self._ledger.database)[1]

    @property
    def newest_record(self) -> Record | None:
        """The last record before the first damaged one; None if there is none."""
        with self._ledger.guard():
            entries, _ = good_entries(self._ledger.database)
        return entries[-1].record if entries else None

    @property
    def clients(self) -> int:
        """Number of clients, N."""
        return self._clients

    @cached_property
    def _clients(self) -> int:
        """The recorded number of clients, which must agree with the list of their sizes.

        Ledgers of clients that are made on demand have no such list.
        """
        clients = int(self.fact("clients"))
        sizes = self.array("sizes")
        if sizes is not None and sizes.shape != (clients,):
            raise LedgerError(
                f"{self._file}: it names {clients} clients, but not their sizes",
                "restore the file from a backup",
            )
        return clients

    @property
    def client_names(self) -> tuple[str, ...]:
        """Names of the clients, (N,); empty if they have none."""
        return recorded_names(self.meta, self.clients)

    def client_number(self, client: int | str) -> int:
        """Return the number of a client that is given by number or by name."""
        return client_number(client, self.clients, self.client_names)

    @property
    def digest(self) -> str:
        """The hash of everything recorded: equal for equal runs."""
        return self.digest_after(self.rounds)

    def digest_after(self, n: int) -> str:
        """Return the hash of the first n rounds."""
        digests = self._query("SELECT digest FROM rounds WHERE n < ? AND n = ?", n - 1)
        if digests:
            return str(digests[0][0])
        return rows.GENESIS

    @property
    def groups(self) -> tuple[Group, ...]:
        """The groups whose sensitivity training measured, as ``[unlearning] groups`` says."""
        return recorded_groups(self.meta)

    def array(self, name: str) -> np.ndarray | None:
        """Return client data: sizes, importance, label_counts, trait/…; or None."""
        with readable(self._file), self._ledger.guard():
            return self._ledger.array(name)

    @property
    def traits(self) -> dict[str, Floats]:
        """Designed differences between clients, (N,) each: imbalance or flip ratios."""
        with self._ledger.guard():
            query = "SELECT name FROM arrays WHERE name LIKE 'trait/%' ORDER BY name"
            names = [
                name for (name,) in self._ledger.database.execute(query).fetchall()
            ]
        return {
            name.removeprefix("trait/"): np.asarray(self.array(name)) for name in names
        }

    @property
    def events(self) -> list[str]:
        """Events of the process: resumes, returns to a round, suspects, …."""
        return self._ledger.events()

    def settle(self) -> None:
        """Merge SQLite's log into the file; a killed process, or a reader, left it there."""
        if self.path is None:
            return
        log = self.path / f"{DATABASE}-wal"
        if not log.exists() or not log.stat().st_size:
            return
        with self._ledger.guard():
            connection = sqlite3.connect(self.path / DATABASE)
            failure = schema.merge_log(connection)
            connection.close()
            if failure is not None and is_full(log, failure):
                raise failure

    def note(self, key: str, value: object) -> None:
        """Record metadata of a run that has ended."""
        if self.path is None:
            self._ledger.set(key, value)
        else:
            self._ledger.close()  # SQLite merges its log when the last reader leaves
            ledger = Ledger.open(self.path, writing=True)
            try:
                ledger.set(key, value)
            finally:
                ledger.close()
            self._ledger = Ledger.open(self.path)
        self.__dict__.pop("meta", None)

    def close(self) -> None:
        """Close the files."""
        self._ledger.close()

    def _query(self, query: str, *values: Any) -> list[Any]:
        with self._ledger.guard():
            return self._ledger.database.execute(
                query, (self.rounds, *values)
            ).fetchall()
