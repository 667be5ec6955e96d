"""Write a ledger anew without the traces of some clients.

The new file has the first rounds only, and in them nothing of the clients that
sensitivities do not need. It has a digest chain of its own. It replaces the old file as
a whole, so that no deleted row stays in a free page or in SQLite's log.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poise.core.client_names import NAMES, without_names
from poise.core.disk import create
from poise.core.errors import LedgerError
from poise.core.sensitivity import MOVED
from poise.core.types import Contribution, Floats, Record
from poise.ledger import models, rows, schema
from poise.ledger.files import is_full, remedy
from poise.ledger.models import FileStore
from poise.ledger.recovery import good_entries
from poise.ledger.rows import Hashes, LedgerEntry
from poise.ledger.store import DATABASE, MODELS, Ledger

ERASED = "erased"
"""The metadata of a ledger that was shortened: the request that asked for it."""

NEW = f"{DATABASE}.erasing"
"""The file in which a redaction writes the new ledger."""

DESCRIPTIONS = ("label_counts", "trait/")
"""Beginnings of the names of arrays that describe clients' data, one row per client."""


@dataclass(frozen=True)
class Redaction:
    """What to erase from a run.

    Args:
        clients: the clients, numbered as in the run.
        rounds: the number of rounds that stay.
        models: the last version whose model stays; -1 for no model.
        sums: whether the updates of the other clients stay (for exact removal).
    """

    clients: tuple[int, ...]
    rounds: int
    models: int
    sums: bool = False


def surplus_files(folder: Path, redaction: Redaction) -> list[Path]:
    """Return the files of models, states and updates that a redaction deletes."""
    place = folder / MODELS
    stay = {f"{models.name(v)}.safetensors" for v in range(redaction.models + 1)}
    if redaction.sums:
        stay |= {f"{models.updates(n)}.safetensors" for n in range(redaction.rounds)}
    if not place.is_dir():
        return []
    return sorted(
        file for file in place.iterdir() if file.name not in stay and is_regular(file)
    )


def is_regular(file: Path) -> bool:
    """Whether a path is a regular file: no folder, no link, no pipe."""
    try:
        return stat.S_ISREG(os.lstat(file).st_mode)
    except OSError:
        return False


def require_erasable_folder(folder: Path) -> None:
    """Raise where a redaction could not write the new ledger or delete files."""
    new = folder / NEW
    if os.path.lexists(new) and not is_regular(new):
        raise LedgerError(f"{new} is not a file; nothing was erased", "move it away")
    for place in (folder, folder / MODELS):
        if place.is_dir() and not os.access(place, os.W_OK | os.X_OK):
            raise LedgerError(
                f"{place} cannot be changed; nothing was erased",
                "give yourself the permission to write there",
            )


def remaining_trace(folder: Path, redaction: Redaction) -> str:
    """Describe the first trace of the clients in a run; empty where none is left."""
    back = surplus_files(folder, redaction)
    if back:
        return f"{back[0].relative_to(folder)} is there"
    for suffix in ("-wal", "-journal"):
        log = folder / f"{DATABASE}{suffix}"
        if log.exists() and log.stat().st_size:
            return f"{log.name} is not empty"
    with closing(_opened(folder)) as database:
        (free,) = database.execute("PRAGMA freelist_count").fetchone()
        if free:
            return f"{DATABASE} has {free} free pages"
        entries = good_entries(database)[0]
        if len(entries) != redaction.rounds:
            return f"the ledger has {len(entries)} rounds instead of {redaction.rounds}"
        if database.execute("SELECT count(*) FROM events").fetchone()[0]:
            return "the ledger has events"
        for entry in entries:
            if not _same_record(entry, _without(entry, redaction)):
                return f"round {entry.record.index} has measurements of the clients"
        query = "SELECT value FROM meta WHERE key = ?"
        for (text,) in database.execute(query, (NAMES,)):
            if without_names(text, redaction.clients) != text:
                return f"{NAMES} has names of the clients"
        arrays = _arrays(database)
        blank = _blank_arrays(arrays, redaction)
        for name, values in arrays.items():
            if values.tobytes() != blank[name].tobytes():
                return f"{name} has values of the clients"
    return _update_trace(folder, redaction, entries)


def _update_trace(
    folder: Path, redaction: Redaction, entries: Sequence[LedgerEntry]
) -> str:
    """Describe an update of the clients that is still stored."""
    if not redaction.sums:
        return ""
    for entry in entries:
        stored = FileStore(folder / MODELS).get(models.updates(entry.record.index))
        mine = _rows_of(entry.record, redaction)
        if stored[models.UPDATES][mine].any():
            return f"the updates of round {entry.record.index} have rows of the clients"
    return ""


def redact(folder: Path, redaction: Redaction, request: int, before: str) -> str:
    """Erase the clients from a run, and return its new digest.

    A redaction that was interrupted continues when it is repeated. The caller holds the
    lock of the run.

    Args:
        folder: the run folder.
        redaction: what to erase.
        request: the number of the request that asks for it.
        before: the digest that the run must still have; `redact` raises if it has not,
            and changes nothing.
    """
    try:
        _merge_log(folder)
        with closing(_opened(folder)) as database:
            meta = dict(database.execute("SELECT key, value FROM meta"))
            arrays = _blank_arrays(_arrays(database), redaction)
            entries = good_entries(database)[0]
        if meta.get(ERASED) != str(request):
            _require_digest(folder, entries, before)
        entries = entries[: redaction.rounds]
        clean = _chained(_clean_entries(folder, entries, redaction))
        meta |= {"schema": str(schema.VERSION), ERASED: str(request)}
        if NAMES in meta:
            meta[NAMES] = without_names(meta[NAMES], redaction.clients)
        if not redaction.sums:
            meta.pop("keep_updates", None)
        _write_new(folder / NEW, meta, arrays, clean)
        os.replace(folder / NEW, folder / DATABASE)
        for suffix in ("-wal", "-shm"):
            (folder / f"{DATABASE}{suffix}").unlink(missing_ok=True)
        for file in surplus_files(folder, redaction):
            file.unlink()
        for place in (folder, folder / MODELS):
            _flush(place)
        return _last_digest(clean)
    except (OSError, sqlite3.Error) as error:
        raise LedgerError(
            f"cannot erase from {folder}: {error}", _again(folder, error)
        ) from error


def _again(folder: Path, error: Exception) -> str:
    """Return what to do after a failure; an erased run cannot be resumed."""
    return f"{remedy(folder / DATABASE, error)}, then repeat the request with --erase"


def _require_digest(folder: Path, entries: Sequence[LedgerEntry], digest: str) -> None:
    """Raise where a ledger is not the one whose digest was signed."""
    if _last_digest(entries) != digest:
        raise LedgerError(
            f"{folder} changed after its digest was signed: another process writes it",
            "stop that process, then repeat the request with --erase",
        )


def _last_digest(entries: Sequence[LedgerEntry]) -> str:
    return entries[-1].digest if entries else rows.GENESIS


def _opened(folder: Path) -> sqlite3.Connection:
    """Open a ledger to read it, also one of an older schema."""
    return Ledger.open(folder).database


def _merge_log(folder: Path) -> None:
    """Merge SQLite's log; a log beside the new file would bring old rows back."""
    with closing(sqlite3.connect(folder / DATABASE)) as connection:
        failure = schema.merge_log(connection)
    log = folder / f"{DATABASE}-wal"
    if failure is not None and is_full(log, failure):
        raise failure
    if log.exists() and log.stat().st_size:
        raise LedgerError(
            f"another program is reading {folder}",
            "close that program, then repeat the request with --erase",
        )


def _arrays(database: sqlite3.Connection) -> dict[str, NDArray[Any]]:
    query = "SELECT name, dtype, shape, data FROM arrays ORDER BY name"
    arrays = {}
    for name, dtype, shape, data in database.execute(query):
        size = [int(k) for k in shape.split(",") if k]
        arrays[name] = np.frombuffer(data, dtype=dtype).reshape(size).copy()
    return arrays


def _blank_arrays(
    arrays: Mapping[str, NDArray[Any]], redaction: Redaction
) -> dict[str, NDArray[Any]]:
    """Blank the rows of the clients in arrays that describe their data."""
    blank = {}
    for name, values in arrays.items():
        blank[name] = values
        if name.startswith(DESCRIPTIONS):
            blank[name] = values.copy()
            known = [c for c in redaction.clients if c < len(values)]
            blank[name][known] = np.nan if values.dtype.kind == "f" else 0
    return blank


def _rows_of(record: Record, redaction: Redaction) -> list[int]:
    """Return the rows of the clients among the contributions of a round."""
    return [
        row
        for row, contribution in enumerate(record.contributions)
        if contribution.client in redaction.clients
    ]


def _without(entry: LedgerEntry, redaction: Redaction) -> LedgerEntry:
    """Return an entry without what sensitivities and certificates do not need."""
    record = entry.record
    mine = _rows_of(record, redaction)
    contributions = list(record.contributions)
    for row in mine:
        contributions[row] = _without_losses(contributions[row])
    measurements = {
        name: values if name.startswith(MOVED) else _blank(values, mine)
        for name, values in record.measurements.items()
    }
    metrics = {
        name: _blank_metric(value, redaction.clients)
        for name, value in record.metrics.items()
    }
    refusals = [
        replace(r, reason="erased") if r.client in redaction.clients else r
        for r in record.refusals
    ]
    clean = replace(
        record,
        contributions=tuple(contributions),
        measurements=measurements,
        metrics=metrics,
        refusals=tuple(refusals),
    )
    updates = entry.hashes.updates if redaction.sums else ""
    return LedgerEntry(clean, Hashes(entry.hashes.model, updates=updates), "")


def _without_losses(contribution: Contribution) -> Contribution:
    return replace(contribution, loss_before=None, loss_after=None)


def _blank(values: Floats, mine: Sequence[int]) -> Floats:
    blank = values.copy()
    blank[list(mine)] = np.nan
    return blank


def _blank_metric(value: float | Floats, clients: Sequence[int]) -> float | Floats:
    if not isinstance(value, np.ndarray):
        return value
    return _blank(value, [c for c in clients if c < len(value)])


def _same_record(left: LedgerEntry, right: LedgerEntry) -> bool:
    """Whether two entries have the same content."""
    before = rows.GENESIS
    return rows.digest_of(before, left.record, left.hashes) == rows.digest_of(
        before, right.record, right.hashes
    )


def _clean_entries(
    folder: Path, entries: Sequence[LedgerEntry], redaction: Redaction
) -> Iterator[LedgerEntry]:
    """Yield the entries that stay; the stored updates lose the clients' rows."""
    store = FileStore(folder / MODELS)
    for entry in entries:
        clean = _without(entry, redaction)
        key = models.updates(entry.record.index)
        if redaction.sums and store.path(key).exists():
            stored = store.get(key)[models.UPDATES].clone()
            stored[_rows_of(entry.record, redaction)] = 0
            digest = store.put(key, {models.UPDATES: stored})
            _flush_store(store, folder)  # before the new ledger names it
            clean = clean._replace(hashes=clean.hashes._replace(updates=digest))
        yield clean


def _flush_store(store: FileStore, folder: Path) -> None:
    try:
        store.flush()
    except LedgerError as error:
        raise LedgerError(error.message, _again(folder, error)) from error


def _chained(entries: Iterator[LedgerEntry]) -> list[LedgerEntry]:
    """Give entries the digests of a chain of their own."""
    chained: list[LedgerEntry] = []
    before = rows.GENESIS
    for entry in entries:
        before = rows.digest_of(before, entry.record, entry.hashes)
        chained.append(entry._replace(digest=before))
    return chained


def _write_new(
    path: Path,
    meta: Mapping[str, str],
    arrays: Mapping[str, NDArray[Any]],
    entries: Sequence[LedgerEntry],
) -> None:
    """Write a new ledger file, flushed to the disk."""
    path.unlink(missing_ok=True)
    os.close(create(path))
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA synchronous = FULL")
        database.execute("BEGIN")
        for statement in schema.TABLES.split(";"):
            database.execute(statement)
        database.executemany("INSERT INTO meta VALUES (?, ?)", sorted(meta.items()))
        for name, values in arrays.items():
            shape = ",".join(map(str, values.shape))
            cells = (name, values.dtype.str, shape, values.tobytes())
            database.execute("INSERT INTO arrays VALUES (?, ?, ?, ?)", cells)
        for entry in entries:
            rows.insert(database, *entry)
        database.execute("COMMIT")
    _flush(path)


def _flush(path: Path) -> None:
    """Flush a file or a folder to the disk."""
    if not path.exists():
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


__all__ = [
    "ERASED",
    "NEW",
    "Redaction",
    "is_regular",
    "redact",
    "remaining_trace",
    "require_erasable_folder",
    "surplus_files",
]
