"""Storage of client state between rounds, on the disk of the client's node only."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from poise.backends.flower.reply_table import NO_VERSION
from poise.core.disk import make_folder, write_files
from poise.core.errors import UpdateRefused

SPARE = (
    2  # older states that the store keeps, for a server that restores an earlier round
)
NAME = re.compile(r"[0-9a-f]{16,64}")

TensorState = dict[str, torch.Tensor]


@dataclass
class ClientStateStore:
    """The states of a client, by run and by model version of the work that made them.

    The server names the version whose state counts. Repeated or refused work therefore
    starts from the same state every time, and a resumed server finds every state that
    it may name.

    Args:
        folder: the folder of the states; None keeps them in memory.
    """

    folder: Path | None = None
    _in_memory: dict[tuple[str, int], TensorState] = field(
        default_factory=dict, repr=False
    )

    def read(self, run: str, version: int) -> TensorState:
        """The state after the work on a version; empty before the first work."""
        if version == NO_VERSION:
            return {}
        try:
            if self.folder is None:
                return self._in_memory[run, version]
            return load(self._file(run, version).read_bytes())
        except (OSError, KeyError, SafetensorError) as error:
            raise UpdateRefused(
                "its node does not have the state of its client after version "
                f"{version}"
            ) from error

    def write(self, run: str, version: int, state: TensorState, used: int) -> None:
        """Store a state, and delete states that no server needs any more.

        ``used`` is the version of the state that the work started from. The store
        deletes states long before it, and states between it and ``version``: late or
        refused work left them.
        """
        if self.folder is None:
            self._in_memory[run, version] = state
            return
        file = self._file(run, version)
        make_folder(file.parent, mode=0o700)
        content = save({name: tensor.contiguous() for name, tensor in state.items()})
        write_files({file: content})
        stored = sorted(int(f.stem) for f in file.parent.glob("*.safetensors"))
        before = [v for v in stored if v < used]
        unused = [v for v in stored if used < v < version]
        for old in (*before[:-SPARE], *unused):
            # a parallel request may have deleted it
            self._file(run, old).unlink(missing_ok=True)

    def _file(self, run: str, version: int) -> Path:
        if not NAME.fullmatch(run) or version < 0 or self.folder is None:
            raise UpdateRefused(
                "a request that cannot be read (invalid name of the client state)"
            )
        return self.folder / run / f"{version}.safetensors"
