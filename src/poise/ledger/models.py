"""Models on disk: one safetensors file per kept version, and which versions are kept.

A file is written beside its place and moved there when it is whole, so a reader never sees half a
model. Its hash stands in the ledger.
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
    """Where tensors are kept by key: a version's model under ``name(version)``, the server's under
    ``.state``.
    """

    def put(self, key: str, tensors: Tensors) -> str:
        """Keep tensors and return their hash."""

    def get(self, key: str, digest: str | None = None) -> dict[str, Vector]:
        """Read tensors, checked against their hash."""

    def keys(self) -> list[str]:
        """What is kept, in order."""

    def drop(self, key: str) -> None:
        """Forget a key."""


def name(version: int) -> str:
    """The key of a version's model.

    >>> name(12)
    '00000012'
    """
    return f"{version:08d}"


UPDATES = "updates"


def updates(n: int) -> str:
    """The key of the updates that aggregation n brought together.

    >>> updates(11)
    '00000012.updates'
    """
    return f"{name(n + 1)}.{UPDATES}"


def versions(store: ModelStore) -> list[int]:
    """The versions whose models are kept, ascending."""
    kept = store.keys()
    return [int(key) for key in kept if key.isdigit()]


class MemoryStore:
    """The models of a run without a folder."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[str, Vector]] = {}

    def put(self, key: str, tensors: Tensors) -> str:
        """Keep tensors."""
        self._kept[key] = {name: t.clone() for name, t in tensors.items()}
        return content_hash(tensors)

    def get(self, key: str, digest: str | None = None) -> dict[str, Vector]:
        """Read tensors."""
        if key not in self._kept:
            raise LedgerError(f"model {key} was not kept", "train with keep='all'")
        return {name: t.clone() for name, t in self._kept[key].items()}

    def keys(self) -> list[str]:
        """What is kept."""
        return sorted(self._kept)

    def drop(self, key: str) -> None:
        """Forget a key."""
        self._kept.pop(key, None)


def _apart(tensors: Tensors) -> dict[str, Vector]:
    """Tensors as they are written: the same vector under two names is there twice, which the format
    insists on.
    """
    found: dict[str, Vector] = {}
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        shared = any(
            plain.untyped_storage().data_ptr() == t.untyped_storage().data_ptr()
            for t in found.values()
        )
        found[name] = plain.clone() if shared else plain
    return found


class FileStore:
    """Models as ``models/<key>.safetensors``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, key: str) -> Path:
        """Where a key's tensors lie."""
        return self.folder / f"{key}.safetensors"

    def put(self, key: str, tensors: Tensors) -> str:
        """Write a file that is whole or not there."""
        from safetensors.torch import save

        write_whole(self.path(key), save(_apart(tensors)))
        return content_hash(tensors)

    def get(self, key: str, digest: str | None = None) -> dict[str, Vector]:
        """Read tensors; a missing, truncated or altered file is named."""
        from safetensors.torch import load

        path = self.path(key)
        if not path.exists():
            raise LedgerError(
                f"{path} is not there: that model was not kept", "train with keep='all'"
            )
        try:
            tensors = load(path.read_bytes())
        except (SafetensorError, OSError, ValueError) as error:
            raise LedgerError(f"{path} is damaged: {error}") from error
        if digest is not None and content_hash(tensors) != digest:
            raise LedgerError(f"{path} is not what the ledger recorded")
        return dict(tensors)

    def keys(self) -> list[str]:
        """What is kept."""
        return sorted(
            p.name.removesuffix(".safetensors") for p in self.folder.glob("*.safetensors")
        )

    def drop(self, key: str) -> None:
        """Delete a key's file."""
        self.path(key).unlink(missing_ok=True)


def content_hash(tensors: Tensors) -> str:
    """Hash of names, shapes, types and values.

    >>> import torch
    >>> content_hash({"theta": torch.zeros(2)}) == content_hash({"theta": torch.zeros(2)})
    True
    """
    state = hashlib.sha256()
    for name in sorted(tensors):
        t = tensors[name].detach().cpu().contiguous()
        state.update(f"{name}:{t.dtype}:{tuple(t.shape)};".encode())
        state.update(
            t.numpy().tobytes() if t.numel() < 4096 else t.numpy().reshape(-1).view("uint8").data
        )
    return state.hexdigest()
