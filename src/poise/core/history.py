"""What the server knows of earlier rounds, for parts that use the past."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch

from poise.core.directions import Directions
from poise.core.gradients import GRADIENT, Gradients
from poise.core.sensitivity import Psi
from poise.core.types import Floats, Ints, Record
from poise.core.vectors import Stack, Vector


class RecordWatcher(Protocol):
    """Examines every record and may exclude clients."""

    @property
    def excluded(self) -> frozenset[int]:
        """Clients whose contributions have weight 0 from now on."""

    @property
    def news(self) -> Sequence[str]:
        """The findings so far, in order."""

    def add(self, record: Record) -> None:
        """Examine one more round."""


@dataclass
class History:
    """A summary of all records so far; the same after a resume as in an uninterrupted run.

    Args:
        lowest_loss: by client, the lowest loss that it reported.
        last_loss: by client, the loss before its last work.
        last_norm: by client, the length of its last update.
        last_steps: by client, the local steps of its last update.
        taken_part: by client, in how many aggregations it took part.
        asked: by client, how many aggregations used, refused or gave up its update.
        reached: the best value of each metric.
        psi: how far each client has moved the model.
        gradients: the last update of every client; None unless a sampler needs them.
        watch: the live audit, if the run has one.
        directions: whether large or small values of a metric are good.
    """

    lowest_loss: dict[int, float] = field(default_factory=dict)
    last_loss: dict[int, float] = field(default_factory=dict)
    last_norm: dict[int, float] = field(default_factory=dict)
    last_steps: dict[int, int] = field(default_factory=dict)
    taken_part: dict[int, int] = field(default_factory=dict)
    asked: dict[int, int] = field(default_factory=dict)
    reached: dict[str, float] = field(default_factory=dict)
    psi: Psi = field(default_factory=Psi)
    gradients: Gradients | None = None
    watch: RecordWatcher | None = None
    directions: Directions = Directions()

    def add(self, record: Record) -> None:
        """Add one more round."""
        taken_part = {c.client for c in record.contributions}
        for client in taken_part:
            self.taken_part[client] = self.taken_part.get(client, 0) + 1
        for client in taken_part | {r.client for r in record.refusals}:
            self.asked[client] = self.asked.get(client, 0) + 1
        for c in record.contributions:
            self.last_norm[c.client] = c.norm
            self.last_steps[c.client] = c.steps
            if c.loss_before is not None:
                self.last_loss[c.client] = c.loss_before
            for loss in (c.loss_before, c.loss_after):
                if loss is not None:
                    self.lowest_loss[c.client] = min(
                        loss, self.lowest_loss.get(c.client, np.inf)
                    )
        self.psi.add(record)
        if self.watch is not None:
            self.watch.add(record)
        self.note(record.metrics)

    def note(self, metrics: Mapping[str, float | Floats]) -> None:
        """Add the metrics measured after the last round."""
        for name, value in metrics.items():
            if isinstance(value, float) and not np.isnan(value):
                better = min if self.directions.lower_is_better(name) else max
                self.reached[name] = better(value, self.reached.get(name, value))

    def add_updates(
        self, clients: list[int], updates: Stack
    ) -> dict[int, dict[str, Vector]]:
        """Add the updates, if a sampler needs them; return what the ledger keeps per client."""
        if self.gradients is None:
            return {}
        rows = self.gradients.add(clients, updates)
        return {client: {GRADIENT: row} for client, row in rows.items()}

    def resume(
        self,
        records: Sequence[Record],
        client_states: Mapping[int, Mapping[str, Vector]],
        tensors: Mapping[str, torch.Tensor],
    ) -> None:
        """Load the history from the records, client states and tensors in the ledger."""
        for record in records:
            self.add(record)
        if self.gradients is not None:
            self.gradients.restore(client_states, records, tensors)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the tensors that the ledger stores for the sampler beside the model."""
        if self.gradients is None:
            return {}
        return self.gradients.tensors()

    @property
    def excluded(self) -> frozenset[int]:
        """Clients whose contributions have weight 0."""
        if self.watch is None:
            return frozenset()
        return self.watch.excluded

    def lowest(self, clients: Ints) -> Floats:
        """The lowest loss that each of these clients has reported; inf for a new client."""
        return np.array(
            [self.lowest_loss.get(int(c), np.inf) for c in clients], dtype=np.float64
        )

    def participations(self, clients: Ints) -> Ints:
        """In how many aggregations each of these clients has taken part."""
        return np.array(
            [self.taken_part.get(int(c), 0) for c in clients], dtype=np.int64
        )

    def losses(self, clients: Ints) -> Floats:
        """The loss that each of these clients reported last; inf for a new client."""
        return np.array(
            [self.last_loss.get(int(c), np.inf) for c in clients], dtype=np.float64
        )

    def norms(self, clients: int) -> Floats:
        """The length of every client's last update, (N,); nan for a new client."""
        norms = np.full(clients, np.nan)
        norms[list(self.last_norm)] = list(self.last_norm.values())
        return norms

    def close(self) -> None:
        """Stop background work."""
        if self.gradients is not None:
            self.gradients.close()
