"""The state that clients keep between rounds, on disk.

Each round writes one file with the new states of its clients (``<version>.clients``). A
file stays as long as it holds the newest state of a client, or held it one round ago
(to fall back on).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from poise.core.types import HELD, PERSONAL, Record
from poise.ledger import models
from poise.ledger.models import ModelStore
from poise.ledger.rows import Hashes, LedgerEntry

__all__ = ["HELD", "PERSONAL", "ClientStateFiles", "key", "put", "read"]

if TYPE_CHECKING:
    from poise.core.vectors import Vector


def key(version: int) -> str:
    """Return the key of the client states that a version wrote."""
    return f"{models.name(version)}.clients"


def put(
    store: ModelStore, version: int, states: Mapping[int, Mapping[str, Vector]]
) -> str:
    """Write the states of clients and return their hash; empty where there are none."""
    tensors = {}
    for client, state in states.items():
        for name, value in state.items():
            tensors[f"{client}/{name}"] = value
    if tensors:
        return store.put(key(version), tensors)
    return ""


def read(
    store: ModelStore, entries: Sequence[LedgerEntry]
) -> dict[int, dict[str, Vector]]:
    """Read the state of every client after these rounds."""
    states: dict[int, dict[str, Vector]] = {}
    newest = _newest_versions((entry.record, entry.hashes) for entry in entries)
    for version in sorted(set(newest.values())):
        tensors = store.get(key(version), entries[version - 1].hashes.clients)
        for path, value in tensors.items():
            number, name = path.split("/", 1)
            client = int(number)
            if newest[client] == version:
                states.setdefault(client, {})[name] = value
    return states


class ClientStateFiles:
    """Decides which files of client states are no longer needed."""

    def __init__(self, written: Iterable[tuple[Record, Hashes]] = ()) -> None:
        entries = list(written)
        self._newest = _newest_versions(entries)
        self._before = _newest_versions(entries[:-1])

    def surplus(self, record: Record) -> list[int]:
        """Return the versions whose file can go after this record is written."""
        needed_before = {*self._newest.values(), *self._before.values()}
        self._before = dict(self._newest)
        for contribution in record.contributions:
            self._newest[contribution.client] = record.index + 1
        return sorted(needed_before - {*self._newest.values(), *self._before.values()})


def _newest_versions(written: Iterable[tuple[Record, Hashes]]) -> dict[int, int]:
    """Return the version of each client's newest state."""
    versions = {}
    for record, hashes in written:
        if hashes.clients:
            for contribution in record.contributions:
                versions[contribution.client] = record.index + 1
    return versions
