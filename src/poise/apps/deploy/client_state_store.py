"""What a client remembers between rounds lies on its node's disk, and nowhere else."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from poise.backends.flower.reply_table import NOTHING
from poise.core.errors import UpdateRefused

SPARE = 2  # states before the one in use that stay: a server whose disk was damaged may go back
NAME = re.compile(r"[0-9a-f]{16,64}")

Named = dict[str, torch.Tensor]


@dataclass
class ClientStateStore:
    """The states of a client, by run and by the model version whose work each one came from.

    The server says after which work the state counts. Work that is asked for again, or was refused,
    so begins with what it began with the first time; and a server that goes on from its ledger
    finds every state that it may name.

    Args:
        folder: where they lie; None keeps them in memory.
    """

    folder: Path | None = None
    _held: dict[tuple[str, int], Named] = field(default_factory=dict, repr=False)

    def read(self, run: str, version: int) -> Named:
        """The state after the work on a version; nothing before the first work."""
        if version == NOTHING:
            return {}
        try:
            return (
                self._held[run, version]
                if self.folder is None
                else load(self._file(run, version).read_bytes())
            )
        except (OSError, KeyError, SafetensorError) as error:
            raise UpdateRefused(
                f"its node does not have the state of its client after version {version}"
            ) from error

    def write(self, run: str, version: int, named: Named, used: int) -> None:
        """Keep a state; those from long before the one that was ``used`` go.

        So do those between the two: work that came late or was refused left them, and no server
        counts on them.
        """
        if self.folder is None:
            self._held[run, version] = named
            return
        file = self._file(run, version)
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = file.with_suffix(".new")
        draft.write_bytes(save({name: v.contiguous() for name, v in named.items()}))
        draft.replace(file)
        kept = sorted(int(f.stem) for f in file.parent.glob("*.safetensors"))
        before, unused = [v for v in kept if v < used], [v for v in kept if used < v < version]
        for old in (*before[:-SPARE], *unused):
            self._file(run, old).unlink(missing_ok=True)  # another request may be at it as well

    def _file(self, run: str, version: int) -> Path:
        if not NAME.fullmatch(run) or version < 0 or self.folder is None:
            raise UpdateRefused("a request that cannot be read (no name of a run's state)")
        return self.folder / run / f"{version}.safetensors"
