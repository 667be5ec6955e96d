"""What a node of a trial does that no real one should: lie about its work, and take its time.

A node's own configuration says so, never the server: ``delay`` and ``[attack]`` in ``node.toml``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from poise import attacks as _attacks  # noqa: F401 - parts are known by name once their module is loaded
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

FILE = "attack.npz"  # what a lying node puts aside between two answers
RUN = "run"  # under which name the file says of which run


@dataclass(frozen=True)
class FaultInjection:
    """How a node misbehaves; by default it does not.

    Args:
        folder: of the node, where a lying one puts aside what it needs.
        attack: what it sends instead of its work.
        seed: names the random numbers of the attack.
        delay: seconds that it waits before it works.
    """

    folder: Path = Path()
    attack: Attack | None = None
    seed: int = 0
    delay: float = 0.0

    @classmethod
    def of(cls, config: Mapping[str, Any], folder: Path) -> FaultInjection:
        """What ``node.toml`` says: ``delay = 5.0``, and ``[attack]`` with a name and options as in
        ``[[attacks]]``.
        """
        delay = config.get("delay", 0.0)
        number = isinstance(delay, int | float) and not isinstance(delay, bool)
        require(
            number and 0 <= delay < np.inf,
            f"node.toml: delay must be seconds, 0 or more, not {delay!r}",
        )
        if "attack" not in config:
            return cls(folder, delay=delay)
        table = {**config["attack"], "clients": [int(config["client"])]}
        seed = table.pop("seed", 0)
        require(
            type(seed) is int and seed >= 0,
            f"node.toml: [attack] seed must be a whole number, not {seed!r}",
        )
        return cls(folder, build("attack", table, "[attack]"), seed, delay)

    def wait(self) -> None:
        """Be slow."""
        time.sleep(self.delay)

    def sent(
        self,
        done: Arrivals,
        assignment: Assignment,
        models: Mapping[int, Vector],
        wire: Wire,
        run: str,
    ) -> Arrivals:
        """What the node sends of a piece of work that it did: the work, or what its attack makes of
        it.
        """
        if self.attack is None:
            return done
        received = models[assignment.version]
        updates = RoundUpdates.of_columns(
            np.ones(1),
            clients=[assignment.client],
            versions=[assignment.version],
            occurrences=[assignment.occurrence],
            stack=wire.decode(done.payload, received),
            trainable=wire.layout.trainable,
            loss_before=done.loss_before,
            loss_after=done.loss_after,
            models=models,
        )
        lies, notes = attacked(
            updates, [self.attack], self.seed, {assignment.client: self._aside(run)}
        )
        self._put_aside(notes[assignment.client], run)
        kept = wire.kept(AlgorithmState(), [assignment.client], received)
        payload = wire.encode(lies.stack, kept, keys(self.seed, "attack", *assignment.key)).payload
        return replace(
            done, payload=payload, loss_before=lies.loss_before, loss_after=lies.loss_after
        )

    def _aside(self, run: str) -> NamedVectors:
        """What it put aside when it last answered in this run."""
        file = self.folder / FILE
        if not file.exists():
            return {}
        with np.load(file, allow_pickle=False) as found:
            if str(found[RUN]) != run:
                return {}
            return {name: torch.from_numpy(found[name]) for name in found.files if name != RUN}

    def _put_aside(self, kept: NamedVectors, run: str) -> None:
        values = {name: value.cpu().numpy() for name, value in kept.items()}
        draft = self.folder / f"new-{FILE}"
        np.savez(draft, allow_pickle=False, **{RUN: np.array(run), **values})
        draft.replace(self.folder / FILE)
