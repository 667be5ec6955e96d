"""What the clients keep to themselves between rounds, on disk.

Each round writes one file with what its clients keep now (``<version>.clients``). A file stays for
as long as it holds the newest of some client, or held it one round ago (to fall back on).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from poise.core.types import HELD, PERSONAL, Record
from poise.ledger import models
from poise.ledger.models import ModelStore
from poise.ledger.rows import Hashes

__all__ = ["HELD", "PERSONAL", "ClientStateFiles", "key", "put", "read"]

if TYPE_CHECKING:
    from poise.core.vectors import Vector


def key(version: int) -> str:
    """Where what clients keep since this version lies."""
    return f"{models.name(version)}.clients"


def put(store: ModelStore, version: int, own: Mapping[int, Mapping[str, Vector]]) -> str:
    """Write what these clients keep; the hash of it, empty where they keep nothing."""
    tensors = {f"{client}/{name}": v for client, named in own.items() for name, v in named.items()}
    return store.put(key(version), tensors) if tensors else ""


def read(
    store: ModelStore, entries: Sequence[tuple[Record, Hashes, str]]
) -> dict[int, dict[str, Vector]]:
    """What every client keeps after these rounds."""
    own: dict[int, dict[str, Vector]] = {}
    newest = _newest((r, h) for r, h, _ in entries)
    for version in sorted(set(newest.values())):
        for path, value in store.get(key(version), entries[version - 1][1].clients).items():
            client, name = path.split("/", 1)
            if newest[int(client)] == version:
                own.setdefault(int(client), {})[name] = value
    return own


class ClientStateFiles:
    """Says which of the files are no longer needed."""

    def __init__(self, written: Iterable[tuple[Record, Hashes]] = ()) -> None:
        entries = list(written)
        self._newest = _newest(entries)
        self._before = _newest(entries[:-1])

    def surplus(self, record: Record) -> list[int]:
        """The versions whose file can go, now that this record's is written."""
        had = {*self._newest.values(), *self._before.values()}
        self._before = dict(self._newest)
        self._newest |= dict.fromkeys((c.client for c in record.contributions), record.index + 1)
        return sorted(had - {*self._newest.values(), *self._before.values()})


def _newest(written: Iterable[tuple[Record, Hashes]]) -> dict[int, int]:
    """The version of each client's newest file."""
    return {
        c.client: record.index + 1
        for record, h in written
        if h.clients
        for c in record.contributions
    }
