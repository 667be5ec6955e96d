"""Reopen a run at its last good round, after a stop, a crash or damage to its files."""

from __future__ import annotations

import os
import sqlite3
import struct
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from poise.core.errors import IncompatibleParts, LedgerError, RoundsLost
from poise.core.types import InFlight, Record
from poise.ledger import client_states, models, rows, schema
from poise.ledger.files import drop_drafts
from poise.ledger.rows import LedgerEntry
from poise.ledger.store import DATABASE, MODELS, SUFFIXES, Ledger

if TYPE_CHECKING:
    from poise.core.vectors import Vector


@dataclass(frozen=True)
class Restart:
    """The state to resume from after ``index`` aggregations; no theta: the start."""

    index: int
    theta: Vector | None
    server: Mapping[str, Vector]
    in_flight: InFlight
    versions: Mapping[int, Vector]
    client_states: Mapping[int, Mapping[str, Vector]] = field(default_factory=dict)
    records: tuple[Record, ...] = ()


UNREADABLE = (
    sqlite3.Error,
    struct.error,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
)
"""Exceptions that reading a record raises where its bytes have changed."""


def good_entries(database: sqlite3.Connection) -> tuple[list[LedgerEntry], str]:
    """Read the records up to the first bad one, and describe that one.

    The description is empty where all records are good.
    """
    entries: list[LedgerEntry] = []
    in_flight = InFlight()
    previous = rows.GENESIS
    database.execute("BEGIN")  # one consistent view, also while a run writes
    try:
        while True:
            n = len(entries)
            entry = rows.select(database, n, in_flight)
            if entry is None:
                return entries, _missing_round(database, n)
            if rows.digest_of(previous, entry.record, entry.hashes) != entry.digest:
                return entries, f"round {n} is not as it was recorded"
            entries.append(entry)
            in_flight = entry.record.in_flight
            previous = entry.digest
    except UNREADABLE as error:
        if isinstance(error, sqlite3.Error) and not schema.is_damage(error):
            raise
        return entries, f"round {len(entries)} cannot be read: {error}"
    finally:
        if database.in_transaction:
            database.execute("ROLLBACK")


def _missing_round(database: sqlite3.Connection, n: int) -> str:
    """Report round n as missing where the ledger has rows of it or of later rounds."""
    for table in schema.PER_ROUND:
        if database.execute(
            f"SELECT 1 FROM {table} WHERE n >= ? LIMIT 1", (n,)
        ).fetchone():
            return f"round {n} is missing"
    return ""


def reopen(
    path: Path,
    meta: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    *,
    go_back: bool = False,
) -> tuple[Ledger, Restart]:
    """Open a run at its last good round, to resume it.

    Rounds after the last good one are computed again. poise keeps the ledger that
    recorded them under another name. It goes back by more than one round only if
    ``go_back`` allows it.
    """
    ledger = Ledger(path, writing=True)
    try:
        for folder in (path, path / MODELS):
            drop_drafts(folder)
        ledger.connect()
        with ledger.guard():
            return ledger, _restart(
                ledger, path, meta=meta, arrays=arrays, go_back=go_back
            )
    except BaseException:
        ledger.close()
        raise


def _restart(
    ledger: Ledger,
    path: Path,
    *,
    meta: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    go_back: bool,
) -> Restart:
    """Find the last good round of an open ledger, and remove the records after it."""
    entries, damage = _read_entries(ledger, path)
    recorded = _recorded_meta(ledger)
    if recorded.get("federation") not in (None, meta.get("federation")):
        raise IncompatibleParts(
            f"{path}: the clients' data are not those the run began with",
            "resume with the data of the original run",
        )
    restart, problem = _last_restart(ledger, entries, recorded.get("initial"))
    rounds = len(entries)
    reason = problem
    if damage:
        rounds = max(rounds, _recorded_rounds(ledger))
        reason = damage
    if problem and not damage and ledger.rounds() != len(entries):
        raise ledger.taken_since(len(entries))  # it deleted the missing files
    if rounds - restart.index > 1 and not go_back:
        raise RoundsLost(
            f"{path} can only continue from round {restart.index} of {rounds}: {reason}",
            "restore the folder from a backup, or go back with --go-back "
            "(resume(go_back=True)); poise keeps the old ledger under another name",
            recorded=rounds,
            kept=restart.index,
        )
    good = entries[: restart.index]
    if damage:
        aside = _unused_name(path, "damaged")
        ledger.replace_database(aside, meta=meta, arrays=arrays, entries=good)
        ledger.event(
            f"{DATABASE} was damaged ({damage}); kept {restart.index} of its rounds"
        )
        _warn_gone_back(path, f"was damaged ({damage})", restart.index, aside=aside)
    elif restart.index < len(entries):
        aside = _unused_name(path, "before")
        ledger.copy_database(aside)
        ledger.own(entries)
        ledger.drop_rounds(restart.index)
        ledger.own(good)
        ledger.event(f"went back to round {restart.index}: {problem}")
        _warn_gone_back(path, f"lacks files ({problem})", restart.index, aside=aside)
    else:
        ledger.own(good)
    return restart


def _warn_gone_back(path: Path, reason: str, index: int, aside: Path) -> None:
    """Warn that a run continues from an earlier round."""
    warnings.warn(
        f"{path} {reason}: the run continues from round {index}; the old ledger is "
        f"{aside.name}",
        stacklevel=6,
    )


def _recorded_rounds(ledger: Ledger) -> int:
    """Return the number of rounds of a damaged ledger, as far as it or the models say."""
    kept = max(models.versions(ledger.store), default=0)
    try:
        return max(ledger.rounds(), kept)
    except UNREADABLE:
        return kept


def _read_entries(ledger: Ledger, path: Path) -> tuple[list[LedgerEntry], str]:
    """Read the good records, and describe the damage to the database (empty: none)."""
    try:
        schema.write_ahead(ledger.database)
        schema.check_version(ledger.database, path / DATABASE)
        schema.upgrade(ledger.database)
        quick_check = ledger.database.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.Error as error:
        if not schema.is_damage(error):
            raise
        return [], str(error)
    entries, damage = good_entries(ledger.database)
    if not damage and quick_check != "ok":
        damage = str(quick_check)
    return entries, damage


def _recorded_meta(ledger: Ledger) -> dict[str, str]:
    """Return the metadata of the run; empty where it cannot be read."""
    try:
        return ledger.meta()
    except sqlite3.Error:
        return {}


def _last_restart(
    ledger: Ledger, entries: list[LedgerEntry], initial: str | None
) -> tuple[Restart, str]:
    """Find the newest round whose model, server state and models in flight exist.

    Also return the first problem that made it skip a newer round.
    """
    problem = ""
    for index in range(len(entries), 0, -1):
        try:
            restart = _restart_at(ledger, entries[:index], initial)
        except LedgerError as error:
            problem = problem or error.message
            continue
        written = [(entry.record, entry.hashes) for entry in entries[:index]]
        ledger.state_files = client_states.ClientStateFiles(written)
        return restart, problem
    from_start = Restart(0, None, server={}, in_flight=InFlight(), versions={})
    return from_start, problem


def _restart_at(
    ledger: Ledger, entries: list[LedgerEntry], initial: str | None
) -> Restart:
    """Read the state after these rounds; raise `LedgerError` for unreadable files."""
    index = len(entries)
    record = entries[-1].record
    hashes = entries[-1].hashes
    theta = ledger.store.get(models.name(index), hashes.model)["theta"]
    server: dict[str, Vector] = {}
    if hashes.state:
        server = ledger.store.get(f"{models.name(index)}.state", hashes.state)
    versions = {}
    for version in {assignment.version for assignment in record.in_flight.assignments}:
        digest = entries[version - 1].hashes.model if version else initial
        versions[version] = ledger.store.get(models.name(version), digest)["theta"]
    return Restart(
        index,
        theta,
        server=server,
        in_flight=record.in_flight,
        versions=versions,
        client_states=client_states.read(ledger.store, entries),
        records=tuple(entry.record for entry in entries),
    )


def _unused_name(path: Path, kind: str) -> Path:
    """Return an unused file name for a ledger that poise sets aside."""
    number = 1
    while _is_taken(path / f"ledger.{kind}-{number}.sqlite"):
        number += 1
    return path / f"ledger.{kind}-{number}.sqlite"


def _is_taken(path: Path) -> bool:
    """Whether a file of a database has this name; a link counts, even one to nothing."""
    files = (
        path.with_name(f"{path.name}{suffix}") for suffix in (*SUFFIXES, "-journal")
    )
    return any(os.path.lexists(file) for file in files)
