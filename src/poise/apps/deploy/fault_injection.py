"""Faults injected into a node in tests and demonstrations: delays and attacks.

Only the node's own configuration can enable them (``delay`` and ``[attack]`` in
``node.toml``); the server cannot.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from poise.core.algorithm_state import AlgorithmState, NamedVectors
from poise.core.arrivals import Arrivals
from poise.core.errors import require
from poise.core.parts import build
from poise.core.protocols import Attack
from poise.core.rng import keys
from poise.core.round_updates import RoundUpdates
from poise.core.types import Assignment
from poise.core.vectors import Vector
from poise.engine.attacks import attacked
from poise.engine.wire import Wire

FILE = "attack.npz"  # notes of the attack between two replies
RUN = "run"  # the entry of the file that names its run


@dataclass(frozen=True)
class FaultInjection:
    """The faults of a node; none by default.

    Args:
        folder: the node's folder, where an attack keeps notes between replies.
        attack: changes the update before the node sends it.
        seed: seed of the attack's random numbers.
        delay: seconds that the node waits before it works.
    """

    folder: Path = Path()
    attack: Attack | None = None
    seed: int = 0
    delay: float = 0.0

    @classmethod
    def of(cls, config: Mapping[str, Any], folder: Path) -> FaultInjection:
        """The faults in ``node.toml``: ``delay``, ``[attack]`` like ``[[attacks]]``."""
        delay = config.get("delay", 0.0)
        is_number = isinstance(delay, int | float) and not isinstance(delay, bool)
        require(
            is_number and 0 <= delay < np.inf,
            f"node.toml: delay must be a number of seconds, 0 or more, not {delay!r}",
        )
        if "attack" not in config:
            return cls(folder, delay=delay)
        table = {**config["attack"], "clients": [int(config["client"])]}
        seed = table.pop("seed", 0)
        require(
            type(seed) is int and seed >= 0,
            f"node.toml: [attack] seed must be a whole number, not {seed!r}",
        )
        attack = build("attack", table, "[attack]")
        return cls(folder, attack, seed=seed, delay=delay)

    def wait(self) -> None:
        """Wait for ``delay`` seconds."""
        time.sleep(self.delay)

    def apply(
        self,
        honest: Arrivals,
        assignment: Assignment,
        models: Mapping[int, Vector],
        wire: Wire,
        run: str,
    ) -> Arrivals:
        """The update that the node sends: honest, or the attack's version of it."""
        if self.attack is None:
            return honest
        received = models[assignment.version]
        updates = RoundUpdates.of_columns(
            np.ones(1),
            clients=[assignment.client],
            versions=[assignment.version],
            occurrences=[assignment.occurrence],
            stack=wire.decode(honest.payload, received),
            trainable=wire.layout.trainable,
            loss_before=honest.loss_before,
            loss_after=honest.loss_after,
            models=models,
        )
        notes = {assignment.client: self._read_notes(run)}
        forged, notes = attacked(updates, [self.attack], self.seed, notes)
        self._write_notes(notes[assignment.client], run)
        channel_state = wire.kept(AlgorithmState(), [assignment.client], received)
        stream = keys(self.seed, "attack", *assignment.key)
        return replace(
            honest,
            payload=wire.encode(forged.stack, channel_state, stream).payload,
            loss_before=forged.loss_before,
            loss_after=forged.loss_after,
        )

    def _read_notes(self, run: str) -> NamedVectors:
        """The attack's notes from its last reply in this run."""
        file = self.folder / FILE
        if not file.exists():
            return {}
        with np.load(file, allow_pickle=False) as stored:
            if str(stored[RUN]) != run:
                return {}
            return {
                name: torch.from_numpy(stored[name])
                for name in stored.files
                if name != RUN
            }

    def _write_notes(self, notes: NamedVectors, run: str) -> None:
        values = {name: value.cpu().numpy() for name, value in notes.items()}
        draft = self.folder / f"new-{FILE}"
        np.savez(draft, allow_pickle=False, **{RUN: np.array(run), **values})
        draft.replace(self.folder / FILE)
