"""Records as rows of the database, and their digest."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import struct
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from poise.core.types import Assignment, Contribution, Floats, InFlight, Record, Refusal

GENESIS = "0" * 64
NOTHING_IN_FLIGHT = InFlight()

CONTRIBUTION_COLUMNS = (
    "client",
    "version",
    "occurrence",
    "base",
    "coefficient",
    "norm",
    "samples",
    "steps",
    "loss_before",
    "loss_after",
)
_contribution_values = attrgetter(*CONTRIBUTION_COLUMNS)


class Hashes(NamedTuple):
    """Hashes of the files of an aggregation; empty where there is no file.

    They are of the new model, the server's state, the clients' states and the updates.
    """

    model: str
    state: str = ""
    clients: str = ""
    updates: str = ""


class LedgerEntry(NamedTuple):
    """A record with the hashes of its files, and its digest."""

    record: Record
    hashes: Hashes
    digest: str


class PackedValues(NamedTuple):
    """Measurements of one round in the database; width 0 is one number per row."""

    dtype: str
    width: int
    data: bytes


def insert(
    connection: sqlite3.Connection, record: Record, hashes: Hashes, digest: str
) -> None:
    """Write one record; the caller holds the transaction."""
    n = record.index
    started = [[a.finish, a.client, a.occurrence, a.weight] for a in started_in(record)]
    connection.execute(
        "INSERT INTO rounds VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            n,
            record.time,
            record.bytes_up,
            record.bytes_down,
            json.dumps(started),
            *hashes[:3],
            digest,
            hashes.updates,
        ),
    )
    contributions = [
        (n, row, *_contribution_values(contribution))
        for row, contribution in enumerate(record.contributions)
    ]
    connection.executemany(
        "INSERT INTO contributions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        contributions,
    )
    for name, metric in record.metrics.items():
        scalar = None
        blob = None
        if isinstance(metric, np.ndarray):
            blob = metric.astype("<f8").tobytes()
        else:
            scalar = metric
        connection.execute(
            "INSERT INTO metrics VALUES (?, ?, ?, ?)", (n, name, scalar, blob)
        )
    for row, r in enumerate(record.refusals):
        refusal = (n, row, r.client, r.version, r.reason, r.occurrence)
        connection.execute("INSERT INTO refusals VALUES (?, ?, ?, ?, ?, ?)", refusal)
    for name, measured in record.measurements.items():
        connection.execute(
            "INSERT INTO measurements VALUES (?, ?, ?, ?, ?)",
            (n, name, *packed(measured)),
        )
    connection.execute("INSERT INTO timings VALUES (?, ?)", (n, record.seconds))


def select(
    connection: sqlite3.Connection, n: int, before: InFlight = NOTHING_IN_FLIGHT
) -> LedgerEntry | None:
    """Read record n with its hashes and digest; None where the ledger has no record n.

    ``before`` is the work in flight after the previous record.
    """
    row = connection.execute("SELECT * FROM rounds WHERE n = ?", (n,)).fetchone()
    if row is None:
        return None
    _, time, up, down, started, model, state, clients, digest, *updates = (
        row  # schema 3: no updates
    )
    contributions = _select_contributions(connection, n)
    refusals = tuple(
        Refusal(*values)
        for values in connection.execute(
            (
                "SELECT client, version, reason, occurrence FROM refusals WHERE n = ? "
                "ORDER BY row"
            ),
            (n,),
        )
    )
    measurements = {
        name: unpacked(*cells)
        for name, *cells in connection.execute(
            "SELECT name, dtype, width, data FROM measurements WHERE n = ?", (n,)
        )
    }
    arrived: tuple[Contribution | Refusal, ...] = (*contributions, *refusals)
    landed = {(a.version, a.client, a.occurrence) for a in arrived}
    still_working = [a for a in before.assignments if a.key not in landed]
    new = [
        Assignment(finish, client, n, occurrence, weight)
        for finish, client, occurrence, weight in json.loads(started)
    ]
    record = Record(
        n,
        time,
        contributions=contributions,
        metrics=_select_metrics(connection, n),
        bytes_up=up,
        bytes_down=down,
        in_flight=InFlight(time, (*still_working, *new)),
        refusals=refusals,
        measurements=measurements,
        seconds=_select_seconds(connection, n),
    )
    return LedgerEntry(record, Hashes(model, state, clients, *updates), digest)


def _select_contributions(
    connection: sqlite3.Connection, n: int
) -> tuple[Contribution, ...]:
    columns = ", ".join(CONTRIBUTION_COLUMNS)
    query = f"SELECT {columns} FROM contributions WHERE n = ? ORDER BY row"
    return tuple(Contribution(*values) for values in connection.execute(query, (n,)))


def _select_metrics(
    connection: sqlite3.Connection, n: int
) -> dict[str, float | Floats]:
    """Read the metrics of a round; SQLite stores nan as NULL."""
    metrics: dict[str, float | Floats] = {}
    query = "SELECT name, value, per_client FROM metrics WHERE n = ?"
    for name, value, blob in connection.execute(query, (n,)):
        if blob is not None:
            metrics[name] = np.frombuffer(blob, dtype="<f8")
        else:
            metrics[name] = float("nan") if value is None else value
    return metrics


def packed(values: Floats) -> PackedValues:
    """Pack the measurements of one round; nan gets one bit pattern."""
    dtype = "<f4" if values.dtype == np.float32 else "<f8"
    width = 0 if values.ndim == 1 else values.shape[1]
    data = np.where(np.isnan(values), np.nan, values).astype(dtype).tobytes()
    return PackedValues(dtype, width, data)


def unpacked(dtype: str, width: int, blob: bytes) -> Floats:
    """The inverse of `packed`: (m,) or (m, width)."""
    values = np.frombuffer(blob, dtype=dtype)
    if width:
        return values.reshape(-1, width)
    return values


def _select_seconds(connection: sqlite3.Connection, n: int) -> float:
    """Read how long the round took; 0 where that is lost, which is no damage."""
    try:
        row = connection.execute(
            "SELECT seconds FROM timings WHERE n = ?", (n,)
        ).fetchone()
    except sqlite3.DatabaseError:
        row = None
    if row and isinstance(row[0], float):
        return float(row[0])
    return 0.0


def started_in(record: Record) -> list[Assignment]:
    """Return the assignments in flight that began with this record."""
    return [a for a in record.in_flight.assignments if a.version == record.index]


def digest_of(previous: str, record: Record, hashes: Hashes) -> str:
    """Return the digest of a record, chained to the digest of the previous one."""
    digest = hashlib.sha256(bytes.fromhex(previous))
    digest.update(
        struct.pack(
            "<qdqq", record.index, record.time, record.bytes_up, record.bytes_down
        )
    )
    for c in record.contributions:
        counts = (c.client, c.version, c.occurrence, c.samples, c.steps)
        losses = [
            np.nan if loss is None else loss for loss in (c.loss_before, c.loss_after)
        ]
        facts = (*counts, c.base, c.coefficient, c.norm, *losses)
        digest.update(struct.pack("<qqqqq5d", *facts))
    for name, metric in sorted(record.metrics.items()):
        numbers = np.asarray(metric, dtype="<f8")
        numbers = np.where(np.isnan(numbers), np.nan, numbers)
        digest.update(name.encode() + b"\0" + numbers.tobytes())
    for name, measured in sorted(record.measurements.items()):
        values = packed(measured)
        digest.update(f"{name}\0{values.dtype}{values.width}".encode() + values.data)
    for a in started_in(record):
        assignment = (a.finish, a.client, a.version, a.occurrence, a.weight)
        digest.update(struct.pack("<dqqqd", *assignment))
    for r in record.refusals:
        digest.update(
            struct.pack("<qqq", r.client, r.version, r.occurrence) + r.reason.encode()
        )
    parts = hashes if hashes.updates else hashes[:3]
    digest.update("/".join(parts).encode())
    return digest.hexdigest()
