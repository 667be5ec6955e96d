"""Taking a run up again: from the last round that is whole, whatever happened to the files."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from poise.core.errors import IncompatibleParts, LedgerError
from poise.core.types import InFlight, Record
from poise.ledger import client_states, models, rows, schema
from poise.ledger.rows import Hashes
from poise.ledger.store import DATABASE, Ledger

if TYPE_CHECKING:
    from poise.core.vectors import Vector

Entry = tuple[Record, Hashes, str]


@dataclass(frozen=True)
class Restart:
    """Where a run can go on: after ``index`` aggregations, or from the start where ``theta`` is
    None.
    """

    index: int
    theta: Vector | None
    server: Mapping[str, Vector]
    in_flight: InFlight
    versions: Mapping[int, Vector]
    own: Mapping[int, Mapping[str, Vector]] = field(default_factory=dict)
    records: tuple[Record, ...] = ()


UNREADABLE = (sqlite3.Error, struct.error, ValueError, TypeError, LookupError, AttributeError)
"""What reading a record raises where its bytes are not those that were written."""


def good_entries(database: sqlite3.Connection) -> tuple[list[Entry], str]:
    """The records up to the first that is missing, damaged or altered, and what was wrong with that
    one.
    """
    entries: list[Entry] = []
    database.execute("BEGIN")  # one view of the ledger, also where someone is writing to it
    try:
        while True:
            found = rows.select(
                database, len(entries), entries[-1][0].in_flight if entries else InFlight()
            )
            if found is None:
                return entries, _beyond(database, len(entries))
            record, hashes, digest = found
            if (
                rows.digest_of(entries[-1][2] if entries else rows.GENESIS, record, hashes)
                != digest
            ):
                return entries, f"round {len(entries)} is not as it was recorded"
            entries.append(found)
    except UNREADABLE as error:
        if isinstance(error, sqlite3.Error) and not schema.is_damage(error):
            raise
        return entries, f"round {len(entries)} cannot be read: {error}"
    finally:
        if database.in_transaction:
            database.execute("ROLLBACK")


def _beyond(database: sqlite3.Connection, n: int) -> str:
    """What is wrong where something of a round after n stands in the ledger, but not the round
    n.
    """
    for table in schema.PER_ROUND:
        if database.execute(f"SELECT 1 FROM {table} WHERE n >= ? LIMIT 1", (n,)).fetchone():
            return f"round {n} is missing"
    return ""


def reopen(
    path: Path, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> tuple[Ledger, Restart]:
    """Open a run for going on, at its last good round.

    A damaged database is moved aside and a new one is made of its good records. Records whose model
    cannot be read are taken back: the rounds are deterministic and will be the same again.
    """
    ledger = Ledger(path, writing=True)
    try:
        ledger.connect()
        with ledger.guard():
            return _reopen(ledger, path, meta, arrays)
    except BaseException:
        ledger.close()
        raise


def _reopen(
    ledger: Ledger, path: Path, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> tuple[Ledger, Restart]:
    entries, broken = _health(ledger, path)
    recorded = _facts(ledger)
    if recorded.get("federation") not in (None, meta.get("federation")):
        raise IncompatibleParts(f"{path}: the clients' data are not those the run began with")
    restart, complaint = _last_restart(ledger, entries, recorded.get("initial"))
    if broken:
        ledger.replace_database(_aside(path), meta, arrays, entries[: restart.index])
        ledger.event(f"{DATABASE} was damaged ({broken}); kept {restart.index} of its rounds")
    elif restart.index < len(entries):
        ledger.take_back(restart.index)
        ledger.event(f"went back to round {restart.index}: {complaint}")
    return ledger, restart


def _health(ledger: Ledger, path: Path) -> tuple[list[Entry], str]:
    """The good records, and what is wrong with the database (empty: nothing)."""
    try:
        schema.write_ahead(ledger.database)
        schema.check_version(ledger.database, path / DATABASE)
        schema.upgrade(ledger.database)
        complaint = ledger.database.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.Error as error:
        if not schema.is_damage(error):
            raise
        return [], str(error)
    entries, broken = good_entries(ledger.database)
    if not broken and complaint != "ok":
        broken = str(complaint)
    return entries, broken


def _facts(ledger: Ledger) -> dict[str, str]:
    """What the ledger says about the run, where that can be read."""
    try:
        return ledger.meta()
    except sqlite3.Error:
        return {}


def _last_restart(ledger: Ledger, entries: list[Entry], initial: str | None) -> tuple[Restart, str]:
    """The newest round whose model, server state and versions in flight can all be read."""
    complaint = ""
    for index in range(len(entries), 0, -1):
        record, hashes, _ = entries[index - 1]
        try:
            theta = ledger.store.get(models.name(index), hashes.model)["theta"]
            server = (
                ledger.store.get(f"{models.name(index)}.state", hashes.state)
                if hashes.state
                else {}
            )
            versions = {
                v: ledger.store.get(models.name(v), entries[v - 1][1].model if v else initial)[
                    "theta"
                ]
                for v in {f.version for f in record.in_flight.assignments}
            }
            kept = client_states.read(ledger.store, entries[:index])
        except LedgerError as error:
            complaint = complaint or error.message
            continue
        records = tuple(r for r, _, _ in entries[:index])
        ledger.own_files = client_states.ClientStateFiles((r, h) for r, h, _ in entries[:index])
        restart = Restart(
            index,
            theta,
            server=server,
            in_flight=record.in_flight,
            versions=versions,
            own=kept,
            records=records,
        )
        return restart, complaint
    return Restart(0, None, {}, InFlight(), {}), complaint


def _aside(path: Path) -> Path:
    number = 1
    while (path / f"ledger.damaged-{number}.sqlite").exists():
        number += 1
    return path / f"ledger.damaged-{number}.sqlite"
