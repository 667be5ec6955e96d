"""Taking a run up again: from the last round that is whole, whatever happened to the files."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from poise.core.errors import LedgerError
from poise.core.types import Record, Sky
from poise.core.vectors import Vector
from poise.ledger import models, rows, schema
from poise.ledger.rows import Hashes
from poise.ledger.store import DATABASE, Ledger

Entry = tuple[Record, Hashes, str]


@dataclass(frozen=True)
class Restart:
    """Where a run can go on: after ``index`` aggregations, or from the start where ``theta`` is None."""

    index: int
    theta: Vector | None
    server: Mapping[str, Vector]
    sky: Sky
    versions: Mapping[int, Vector]


def good_entries(database: sqlite3.Connection) -> tuple[list[Entry], str]:
    """The records up to the first that is missing, damaged or altered, and what was wrong with that one."""
    entries: list[Entry] = []
    previous = rows.GENESIS
    while True:
        n = len(entries)
        try:
            record, hashes, digest = rows.select(database, n)
        except KeyError:
            return entries, ""
        except (sqlite3.Error, ValueError, TypeError) as error:
            return entries, f"round {n} cannot be read: {error}"
        if rows.digest_of(previous, record, hashes) != digest:
            return entries, f"round {n} is not as it was recorded"
        entries.append((record, hashes, digest))
        previous = digest


def reopen(path: Path, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> tuple[Ledger, Restart]:
    """Open a run for going on, at its last good round.

    A damaged database is moved aside and a new one is made of its good records. Records whose model
    cannot be read are taken back: the rounds are deterministic and will be the same again.
    """
    ledger = Ledger(path, writing=True)
    try:
        return _reopen(ledger, path, meta, arrays)
    except BaseException:
        ledger.close()
        raise


def _reopen(
    ledger: Ledger, path: Path, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> tuple[Ledger, Restart]:
    entries, broken = _health(ledger, path)
    restart, complaint = _last_restart(ledger, entries)
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
        schema.check_version(ledger.database, path / DATABASE)
        complaint = ledger.database.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.Error as error:
        return [], str(error)
    entries, broken = good_entries(ledger.database)
    if not broken and complaint != "ok":
        broken = str(complaint)
    return entries, broken


def _last_restart(ledger: Ledger, entries: list[Entry]) -> tuple[Restart, str]:
    """The newest round whose model, server state and versions in flight can all be read."""
    complaint = ""
    for index in range(len(entries), 0, -1):
        record, hashes, _ = entries[index - 1]
        try:
            theta = ledger.store.get(models.name(index), hashes.model)["theta"]
            server = ledger.store.get(f"{models.name(index)}.state", hashes.state) if hashes.state else {}
            versions = {
                v: ledger.store.get(models.name(v), entries[v - 1][1].model if v else None)["theta"]
                for v in {f.version for f in record.sky.flights}
            }
        except LedgerError as error:
            complaint = complaint or error.message
            continue
        return Restart(index, theta, server, record.sky, versions), complaint
    return Restart(0, None, {}, Sky(), {}), complaint


def _aside(path: Path) -> Path:
    number = 1
    while (path / f"ledger.damaged-{number}.sqlite").exists():
        number += 1
    return path / f"ledger.damaged-{number}.sqlite"
