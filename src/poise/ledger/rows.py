"""Records as rows of the database, and their digest."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import struct
from typing import NamedTuple

import numpy as np

from poise.core.types import Assignment, Contribution, Floats, InFlight, Record, Refusal

GENESIS = "0" * 64
NO_SKY = InFlight()


class Hashes(NamedTuple):
    """Hashes of the model after an aggregation, the server's state, what clients keep, the updates
    (empty: none).
    """

    model: str
    state: str = ""
    clients: str = ""
    updates: str = ""


def insert(connection: sqlite3.Connection, record: Record, hashes: Hashes, digest: str) -> None:
    """Write one record; the caller holds the transaction."""
    n = record.index
    assignments = json.dumps(
        [[f.finish, f.client, f.occurrence, f.weight] for f in departed(record)]
    )
    connection.execute(
        "INSERT INTO rounds VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            n,
            record.time,
            record.bytes_up,
            record.bytes_down,
            assignments,
            *hashes[:3],
            digest,
            hashes.updates,
        ),
    )
    connection.executemany(
        "INSERT INTO contributions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                n,
                k,
                c.client,
                c.version,
                c.occurrence,
                c.base,
                c.coefficient,
                c.norm,
                c.samples,
                c.steps,
                c.loss_before,
                c.loss_after,
            )
            for k, c in enumerate(record.contributions)
        ],
    )
    for name, value in record.metrics.items():
        many = isinstance(value, np.ndarray)
        row = (n, name, None, value.astype("<f8").tobytes()) if many else (n, name, value, None)  # type: ignore[union-attr]
        connection.execute("INSERT INTO metrics VALUES (?, ?, ?, ?)", row)
    for k, r in enumerate(record.refusals):
        values = (n, k, r.client, r.version, r.reason, r.occurrence)
        connection.execute("INSERT INTO refusals VALUES (?, ?, ?, ?, ?, ?)", values)
    for name, read in record.measurements.items():
        connection.execute(
            "INSERT INTO measurements VALUES (?, ?, ?, ?, ?)", (n, name, *packed(read))
        )
    connection.execute("INSERT INTO timings VALUES (?, ?)", (n, record.seconds))


def select(
    connection: sqlite3.Connection, n: int, before: InFlight = NO_SKY
) -> tuple[Record, Hashes, str] | None:
    """Read record n back, with the hashes of what it led to and its digest; None where there is
    none.

    ``before`` is the in_flight that the record before it left.
    """
    row = connection.execute("SELECT * FROM rounds WHERE n = ?", (n,)).fetchone()
    if row is None:
        return None
    _, time, up, down, assignments, model, state, clients, digest, *updates = (
        row  # schema 3 has no updates
    )
    columns = (
        "client, version, occurrence, base, coefficient, norm, samples, steps, loss_before, "
        "loss_after"
    )
    contributions = tuple(
        Contribution(*r)
        for r in connection.execute(
            f"SELECT {columns} FROM contributions WHERE n = ? ORDER BY row", (n,)
        )
    )
    metrics: dict[str, float | Floats] = {
        name: np.frombuffer(blob, dtype="<f8")
        if blob is not None
        else (float("nan") if value is None else value)
        for name, value, blob in connection.execute(
            "SELECT name, value, per_client FROM metrics WHERE n = ?", (n,)
        )
    }
    refusals = tuple(
        Refusal(*r)
        for r in connection.execute(
            "SELECT client, version, reason, occurrence FROM refusals WHERE n = ? ORDER BY row",
            (n,),
        )
    )
    measurements = {
        name: unpacked(*cells)
        for name, *cells in connection.execute(
            "SELECT name, dtype, width, data FROM measurements WHERE n = ?", (n,)
        )
    }
    seconds = _seconds(connection, n)
    arrived: tuple[Contribution | Refusal, ...] = (*contributions, *refusals)
    landed = {(a.version, a.client, a.occurrence) for a in arrived}
    new = tuple(Assignment(f, c, n, o, w) for f, c, o, w in json.loads(assignments))
    in_flight = InFlight(time, (*(f for f in before.assignments if f.key not in landed), *new))
    record = Record(
        n,
        time,
        contributions=contributions,
        metrics=metrics,
        bytes_up=up,
        bytes_down=down,
        in_flight=in_flight,
        refusals=refusals,
        measurements=measurements,
        seconds=seconds,
    )
    return record, Hashes(model, state, clients, *updates), digest


def packed(read: Floats) -> tuple[str, int, bytes]:
    """Measurements of one round as (type, width, bytes); width 0 for one number per
    contribution.
    """
    dtype = "<f4" if read.dtype == np.float32 else "<f8"
    return (
        dtype,
        0 if read.ndim == 1 else read.shape[1],
        np.where(np.isnan(read), np.nan, read).astype(dtype).tobytes(),
    )


def unpacked(dtype: str, width: int, blob: bytes) -> Floats:
    """The inverse of `packed`: (m,) or (m, width)."""
    values = np.frombuffer(blob, dtype=dtype)
    return values.reshape(-1, width) if width else values


def _seconds(connection: sqlite3.Connection, n: int) -> float:
    """How long the round took, 0 where that is lost: no part of the experiment, so nothing worth
    going back for.
    """
    try:
        row = connection.execute("SELECT seconds FROM timings WHERE n = ?", (n,)).fetchone()
    except sqlite3.DatabaseError:
        row = None
    return float(row[0]) if row and isinstance(row[0], float) else 0.0


def departed(record: Record) -> list[Assignment]:
    """The work that began with this record and is still under way after it; older work stands in
    older records.
    """
    return [f for f in record.in_flight.assignments if f.version == record.index]


def digest_of(previous: str, record: Record, hashes: Hashes) -> str:
    """The digest of a record, chained to the one before it: it vouches for all that was recorded so
    far.
    """
    state = hashlib.sha256(bytes.fromhex(previous))
    state.update(
        struct.pack("<qdqq", record.index, record.time, record.bytes_up, record.bytes_down)
    )
    for c in record.contributions:
        counts = (c.client, c.version, c.occurrence, c.samples, c.steps)
        weights = (
            c.base,
            c.coefficient,
            c.norm,
            *(np.nan if v is None else v for v in (c.loss_before, c.loss_after)),
        )
        state.update(struct.pack("<qqqqq5d", *counts, *weights))
    for name, value in sorted(record.metrics.items()):
        numbers = np.asarray(value, dtype="<f8")
        state.update(name.encode() + b"\0" + np.where(np.isnan(numbers), np.nan, numbers).tobytes())
    for name, read in sorted(record.measurements.items()):
        dtype, width, blob = packed(read)
        state.update(f"{name}\0{dtype}{width}".encode() + blob)
    for f in departed(record):
        assignment = (f.finish, f.client, f.version, f.occurrence, f.weight)
        state.update(struct.pack("<dqqqd", *assignment))
    for r in record.refusals:
        state.update(struct.pack("<qqq", r.client, r.version, r.occurrence) + r.reason.encode())
    state.update("/".join(hashes if hashes.updates else hashes[:3]).encode())
    return state.hexdigest()
