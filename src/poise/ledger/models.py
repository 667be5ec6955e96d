"""Stores of models: one safetensors file per kept version, or memory.

poise writes a temporary file and renames it, so a reader never sees half a model. The
ledger holds the hash of every model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from safetensors import SafetensorError

from poise.core.errors import LedgerError
from poise.ledger.files import write_whole

if TYPE_CHECKING:
    from poise.core.vectors import Vector

    Tensors: TypeAlias = Mapping[str, Vector]

Keep: TypeAlias = Literal["all", "unlearnable", "last"]


class ModelStore(Protocol):
    """Stores tensors by key.

    A version's model has the key ``name(version)``; the server's state has the suffix
    ``.state``.
    """

    def put(self, key: str, tensors: Tensors) -> str:
        """Store tensors and return their hash."""

    def get(self, key: str, digest: str | None = None) -> dict[str, Vector]:
        """Read tensors, and check them against their hash."""

    def keys(self) -> list[str]:
        """Return the stored keys, in order."""

    def drop(self, key: str) -> None:
        """Delete the tensors of a key."""


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

    def put(self, key: str, tensors: Tensors) -> str:
        """Store tensors and return their hash."""
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
    """Stores models as files ``models/<key>.safetensors``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, key: str) -> Path:
        """Return the file of a key."""
        return self.folder / f"{key}.safetensors"

    def put(self, key: str, tensors: Tensors) -> str:
        """Write a file, whole or not at all, and return the hash of its tensors."""
        from safetensors.torch import save

        write_whole(self.path(key), save(_without_sharing(tensors)))
        return content_hash(tensors)

    def get(self, key: str, digest: str | None = None) -> dict[str, Vector]:
        """Read tensors; errors name a missing, truncated or altered file."""
        from safetensors.torch import load

        path = self.path(key)
        if not path.exists():
            raise LedgerError(
                f"{path} is not there: that model was not kept", "train with keep='all'"
            )
        try:
            tensors = load(path.read_bytes())
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
        return sorted(file.name.removesuffix(".safetensors") for file in files)

    def drop(self, key: str) -> None:
        """Delete a key's file."""
        self.path(key).unlink(missing_ok=True)


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
