"""Stores of models: one safetensors file per kept version, or memory.

poise writes a temporary file and renames it, so a reader never sees half a model. The
ledger holds the hash of every model.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from safetensors import SafetensorError

from poise.core.errors import LedgerError
from poise.ledger.files import write_files
from poise.ledger.foreign import open_regular

if TYPE_CHECKING:
    from poise.core.vectors import Vector

    Tensors: TypeAlias = Mapping[str, Vector]
    Header: TypeAlias = dict[str, str]

Keep: TypeAlias = Literal["all", "unlearnable", "last"]


class ModelStore(Protocol):
    """Stores tensors by key.

    A version's model has the key ``name(version)``; the server's state has the suffix
    ``.state``.
    """

    def put(self, key: str, tensors: Tensors, header: Header | None = None) -> str:
        """Store tensors and return their hash, which does not cover the header."""

    def get(self, key: str, digest: str | None = None) -> dict[str, Vector]:
        """Read tensors, and check them against their hash."""

    def keys(self) -> list[str]:
        """Return the stored keys, in order."""

    def drop(self, key: str) -> None:
        """Delete the tensors of a key, once the ledger no longer names them."""

    @property
    def waiting(self) -> int:
        """Number of bytes that are not on the disk yet."""

    def flush(self) -> None:
        """Flush new tensors to the disk, before the ledger names them."""

    def sweep(self) -> None:
        """Delete dropped tensors from the disk, after the ledger recorded newer ones."""

    def discard(self) -> None:
        """Forget new and dropped tensors that the ledger could not record."""


def name(version: int) -> str:
    """Return the key of a version's model.

    >>> name(12)
    '00000012'
    """
    return f"{version:08d}"


UPDATES = "updates"


def updates(n: int) -> str:
    """Return the key of the updates of aggregation n.

    >>> updates(11)
    '00000012.updates'
    """
    return f"{name(n + 1)}.{UPDATES}"


def versions(store: ModelStore) -> list[int]:
    """Return the versions whose models are kept, ascending."""
    keys = store.keys()
    return [int(key) for key in keys if key.isdigit()]


class MemoryStore:
    """Stores the models of a run without a folder."""

    def __init__(self) -> None:
        self._tensors: dict[str, dict[str, Vector]] = {}

    def put(self, key: str, tensors: Tensors, header: Header | None = None) -> str:
        """Store tensors and return their hash; memory has no headers."""
        self._tensors[key] = {name: t.clone() for name, t in tensors.items()}
        return content_hash(tensors)

    def get(self, key: str, digest: str | None = None) -> dict[str, Vector]:
        """Read tensors."""
        if key not in self._tensors:
            raise LedgerError(f"model {key} was not kept", "train with keep='all'")
        return {name: t.clone() for name, t in self._tensors[key].items()}

    def keys(self) -> list[str]:
        """Return the stored keys, in order."""
        return sorted(self._tensors)

    def drop(self, key: str) -> None:
        """Delete the tensors of a key."""
        self._tensors.pop(key, None)

    @property
    def waiting(self) -> int:
        """Nothing waits for a disk."""
        return 0

    def flush(self) -> None:
        """Do nothing: there is no disk."""

    def sweep(self) -> None:
        """Do nothing: `drop` deleted the tensors."""

    def discard(self) -> None:
        """Do nothing: the tensors are not recorded anywhere else."""


def _without_sharing(tensors: Tensors) -> dict[str, Vector]:
    """Copy tensors that share memory: safetensors refuses shared storage."""
    separate: dict[str, Vector] = {}
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        address = plain.untyped_storage().data_ptr()
        shared = any(
            address == t.untyped_storage().data_ptr() for t in separate.values()
        )
        separate[name] = plain.clone() if shared else plain
    return separate


class FileStore:
    """Stores models as files ``models/<key>.safetensors``.

    New tensors wait in memory for `flush`, which puts them on the disk together.
    Tensors that a later round drops before that never reach the disk.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.waiting = 0
        self._new: dict[str, bytes] = {}
        self._dropped: set[str] = set()

    def path(self, key: str) -> Path:
        """Return the file of a key."""
        return self.folder / f"{key}.safetensors"

    def put(self, key: str, tensors: Tensors, header: Header | None = None) -> str:
        """Keep tensors for the next `flush` and return their hash."""
        from safetensors.torch import save

        content = save(_without_sharing(tensors), metadata=header)
        self._withdraw(key)
        self._new[key] = content
        self.waiting += len(content)
        self._dropped.discard(key)
        return content_hash(tensors)

    def get(self, key: str, digest: str | None = None) -> dict[str, Vector]:
        """Read tensors; errors name a missing, truncated or altered file."""
        from safetensors.torch import load

        path = self.path(key)
        if key not in self._new and not path.exists():
            raise LedgerError(
                f"{path} is not there: that model was not kept", "train with keep='all'"
            )
        try:
            content = self._new.get(key)
            if content is None:
                with os.fdopen(open_regular(path, below=1), "rb") as file:
                    content = file.read()
            tensors = load(content)
        except (SafetensorError, OSError, ValueError) as error:
            raise LedgerError(
                f"{path} is damaged: {error}",
                "`poise resume` goes back to the last good round",
            ) from error
        if digest is not None and content_hash(tensors) != digest:
            raise LedgerError(
                f"{path} is not what the ledger recorded",
                "`poise resume` goes back to the last good round",
            )
        return dict(tensors)

    def keys(self) -> list[str]:
        """Return the stored keys, in order."""
        files = self.folder.glob("*.safetensors")
        on_disk = {file.name.removesuffix(".safetensors") for file in files}
        return sorted((on_disk - self._dropped) | self._new.keys())

    def drop(self, key: str) -> None:
        """Delete the tensors of a key, at the next `sweep` if they are on the disk."""
        self._withdraw(key)
        self._dropped.add(key)

    def _withdraw(self, key: str) -> None:
        """Take tensors out of those that wait for the disk."""
        self.waiting -= len(self._new.pop(key, b""))

    def flush(self) -> None:
        """Flush new tensors to the disk, before the ledger names them."""
        write_files({self.path(key): content for key, content in self._new.items()})
        self._new.clear()
        self.waiting = 0

    def sweep(self) -> None:
        """Delete dropped tensors from the disk, after the ledger recorded newer ones."""
        for key in self._dropped:
            self.path(key).unlink(missing_ok=True)
        self._dropped.clear()

    def discard(self) -> None:
        """Forget new and dropped tensors that the ledger could not record."""
        self._new.clear()
        self.waiting = 0
        self._dropped.clear()


def content_hash(tensors: Tensors) -> str:
    """Return the hash of names, shapes, types and values.

    >>> import torch
    >>> content_hash({"theta": torch.zeros(2)}) == content_hash({"theta": torch.zeros(2)})
    True
    """
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)};".encode())
        values = tensor.numpy()
        if tensor.numel() < 4096:
            digest.update(values.tobytes())
        else:
            digest.update(values.reshape(-1).view("uint8").data)  # without a copy
    return digest.hexdigest()
