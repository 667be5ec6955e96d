"""What the server remembers of earlier rounds, for parts that look back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch

from poise.core.gradients import GRADIENT, Gradients
from poise.core.sensitivity import Psi
from poise.core.types import Floats, Ints, Record
from poise.core.vectors import Stack, Vector


class RecordWatcher(Protocol):
    """Looks at every record, and may keep clients out."""

    @property
    def excluded(self) -> frozenset[int]:
        """Whose contributions have weight 0 from now on."""

    def add(self, record: Record) -> None:
        """Take in one more round."""


@dataclass
class History:
    """A fold over the records so far: the same after a resume as in a run that was never stopped.

    ``gradients`` is kept only where a sampler asks for it.
    """

    lowest_loss: dict[int, float] = field(
        default_factory=dict
    )  # by client, of the losses it reported
    last_loss: dict[int, float] = field(default_factory=dict)  # by client, before its last work
    last_norm: dict[int, float] = field(default_factory=dict)  # by client, of its last update
    taken_part: dict[int, int] = field(default_factory=dict)  # by client, in how many aggregations
    reached: dict[str, float] = field(default_factory=dict)  # the best value of each metric
    psi: Psi = field(default_factory=Psi)  # how far each client has moved the model
    gradients: Gradients | None = None
    watch: RecordWatcher | None = None

    def add(self, record: Record) -> None:
        """Take in one more round."""
        for client in {c.client for c in record.contributions}:
            self.taken_part[client] = self.taken_part.get(client, 0) + 1
        for c in record.contributions:
            self.last_norm[c.client] = c.norm
            if c.loss_before is not None:
                self.last_loss[c.client] = c.loss_before
            for loss in (c.loss_before, c.loss_after):
                if loss is not None:
                    self.lowest_loss[c.client] = min(loss, self.lowest_loss.get(c.client, np.inf))
        self.psi.add(record)
        if self.watch is not None:
            self.watch.add(record)
        self.note(record.metrics)

    def note(self, metrics: Mapping[str, float | Floats]) -> None:
        """Take in what was measured after the last round."""
        for name, value in metrics.items():
            if isinstance(value, float) and not np.isnan(value):
                better = min if name.endswith(("loss", "mae")) else max
                self.reached[name] = better(value, self.reached.get(name, value))

    def add_updates(self, clients: list[int], updates: Stack) -> dict[int, dict[str, Vector]]:
        """Take in the updates themselves, where they are asked for; what the ledger keeps of each
        client.
        """
        if self.gradients is None:
            return {}
        kept = self.gradients.add(clients, updates)
        return {client: {GRADIENT: row} for client, row in kept.items()}

    def resume(
        self,
        records: Sequence[Record],
        kept: Mapping[int, Mapping[str, Vector]],
        state: Mapping[str, torch.Tensor],
    ) -> None:
        """Become the history that these records leave."""
        for record in records:
            self.add(record)
        if self.gradients is not None:
            self.gradients.restore(kept, records, state)

    def tensors(self) -> dict[str, torch.Tensor]:
        """What the ledger keeps for the sampler beside the model."""
        return {} if self.gradients is None else self.gradients.tensors()

    @property
    def excluded(self) -> frozenset[int]:
        """Clients whose contributions have weight 0."""
        return frozenset() if self.watch is None else self.watch.excluded

    def lowest(self, clients: Ints) -> Floats:
        """The lowest loss that each of these clients has reported; inf for a new one."""
        return np.array([self.lowest_loss.get(int(c), np.inf) for c in clients], dtype=np.float64)

    def participations(self, clients: Ints) -> Ints:
        """In how many aggregations each of these clients took part so far."""
        return np.array([self.taken_part.get(int(c), 0) for c in clients], dtype=np.int64)

    def losses(self, clients: Ints) -> Floats:
        """The loss that each of these clients reported last; inf for a new one, about which nothing
        is known.
        """
        return np.array([self.last_loss.get(int(c), np.inf) for c in clients], dtype=np.float64)

    def norms(self, clients: int) -> Floats:
        """The norm of every client's last update, (N,); nan for a new one."""
        found = np.full(clients, np.nan)
        found[list(self.last_norm)] = list(self.last_norm.values())
        return found

    def close(self) -> None:
        """Let go of what works in the background."""
        if self.gradients is not None:
            self.gradients.close()
