"""Logs of signed entries, one DSSE envelope a line, each naming the hash of the last.

A run folder has the log of its digests, which training writes. A folder of unlearning
branches has the log of its certificates. Time and signatures are in these logs only:
the ledger, its digest and the models stay equal for equal runs.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from poise.core.errors import LedgerError
from poise.evidence.envelope import Statement, seal, unseal
from poise.evidence.keys import PublicKey, SigningKey

FILE = "evidence.jsonl"
ENTRY = "urn:poise:log-entry:v1"
NOTHING = "0" * 64
MAX_BYTES = 1 << 26  # a longer log is not one that poise wrote
KEYS = {"event", "previous", "rounds", "serial", "time"}


@dataclass(frozen=True)
class Entry:
    """One signed entry.

    Args:
        event: ``checkpoint``, ``begun``, ``ended``, ``erasing``, ``erased`` for digests
            of runs, ``certificate`` for certificates.
        subject: the name of the thing that the entry is about.
        digest: its hash: the digest of the ledger, or of a signed certificate.
        serial: the number of the entry, from 1.
        time: when it was signed, in UTC.
        rounds: the rounds that the digest covers.
        key: the key that signed it.
    """

    event: str
    subject: str
    digest: str
    serial: int
    time: str
    rounds: int
    key: PublicKey


def now() -> str:
    """Return the time in UTC, in seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def append(
    folder: Path,
    key: SigningKey,
    *,
    event: str,
    subject: str,
    digest: str,
    rounds: int,
    time: str | None = None,
) -> Entry:
    """Add an entry to the log of a folder, on the disk before this returns."""
    path = folder / FILE
    try:
        lines = _whole_lines(path)
        entry = Entry(
            event,
            subject=subject,
            digest=digest,
            serial=len(lines) + 1,
            time=time or now(),
            rounds=rounds,
            key=key.public,
        )
        _write(path, lines, seal(_statement(entry, lines), key))
    except OSError as error:
        raise LedgerError(
            f"cannot write {path}: {error.strerror}", "remove the cause, then repeat"
        ) from error
    return entry


def entries(folder: Path) -> list[Entry]:
    """Read and check the log of a folder; empty where there is none.

    Raises where an entry was altered, removed from the middle, or added.
    """
    path = folder / FILE
    try:
        lines = _whole_lines(path)
    except OSError as error:
        raise LedgerError(f"cannot read {path}: {error.strerror}") from error
    result = []
    for position, line in enumerate(lines):
        where = f"{path}, line {position + 1}"
        result.append(_entry(line, lines[:position], where))
    return result


def next_serial(folder: Path) -> int:
    """Return the number that the next entry of a folder's log gets."""
    return len(entries(folder)) + 1


def _entry(line: bytes, before: list[bytes], where: str) -> Entry:
    """Read one entry, which follows on others."""
    opened = unseal(line, where)
    statement = opened.statement
    facts: Any = statement.predicate
    try:
        ((subject, digest),) = statement.subjects
        entry = Entry(
            facts["event"],
            subject=subject,
            digest=digest,
            serial=facts["serial"],
            time=facts["time"],
            rounds=facts["rounds"],
            key=opened.key,
        )
        same = _statement(entry, before).payload == opened.payload
    except (LookupError, TypeError, ValueError):
        same = False
    if not same or entry.serial != len(before) + 1:
        raise LedgerError(
            f"{where} does not follow on the line before it",
            "the log was altered: restore it from a backup",
        )
    return entry


def _statement(entry: Entry, before: list[bytes]) -> Statement:
    """Return the statement of an entry."""
    previous = hashlib.sha256(before[-1]).hexdigest() if before else NOTHING
    facts = {
        "event": entry.event,
        "previous": previous,
        "rounds": entry.rounds,
        "serial": entry.serial,
        "time": entry.time,
    }
    return Statement(((entry.subject, entry.digest),), ENTRY, facts)


def _whole_lines(path: Path) -> list[bytes]:
    """Return the whole lines of a log; a process that died may have left half a line."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return []
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise LedgerError(f"{path} is not a file", "remove it")
        content = file.read(MAX_BYTES)
    return [line for line in content.splitlines(keepends=True) if line.endswith(b"\n")]


def _write(path: Path, lines: list[bytes], line: bytes) -> None:
    """Add a line after the whole lines of a file, and flush it to the disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    with os.fdopen(descriptor, "wb") as file:
        if os.fstat(descriptor).st_nlink > 1:
            raise OSError(errno.EMLINK, "a hard link to another file", str(path))
        file.truncate(sum(map(len, lines)))
        file.seek(0, os.SEEK_END)
        file.write(line)
        file.flush()
        os.fsync(file.fileno())
    if not lines:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


__all__ = ["FILE", "Entry", "append", "entries", "next_serial", "now"]
