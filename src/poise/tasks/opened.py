"""`Opened`: the samples of a group of clients, opened for their local work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import torch

from poise.core.batches import Batch, BatchPlan
from poise.core.samples import Shards
from poise.core.trees import Inputs
from poise.core.types import Ints
from poise.tasks.transforms import Augmentation


@dataclass
class Opened:
    """The samples of a group of clients, the streams of their random layers, and a batch buffer."""

    shards: Shards
    generators: list[torch.Generator] | None
    buffer: torch.Tensor | None = None
    augmentation: Augmentation | None = None

    def take(self, positions: torch.Tensor) -> tuple[Inputs, torch.Tensor]:
        """Return features and labels at these positions; the next call overwrites the features."""
        return self.shards.take(positions, self._room(positions.numel()))

    def take_batch(self, batch: Batch) -> tuple[Inputs, torch.Tensor]:
        """Return features and labels of one step, transformed as the task says."""
        x, y = self.take(batch.positions)
        if self.augmentation is not None:
            x = self.augmentation.stack(x, batch.counts)
        return x, y

    def follow(self, plan: BatchPlan) -> Iterator[tuple[Inputs, torch.Tensor, Batch]]:
        """Yield features, labels and batch of every step; the next step overwrites the features.

        Samples and labels of all steps are looked up at once: for small batches a
        look-up costs as much as a layer.
        """
        where = self.shards.at(plan.positions)
        for batch, rows, labels in zip(plan, *where, strict=True):
            active = len(batch.counts)
            if active < len(rows):
                rows = rows[:active]
                labels = labels[:active]
            x = self.shards.samples.features(rows, self._room(rows.numel()))
            if self.augmentation is not None:
                x = self.augmentation.stack(x, batch.counts)
            yield x, labels, batch

    def apart(self, plan: BatchPlan) -> Iterator[Iterator[tuple[Inputs, torch.Tensor]]]:
        """Yield for each client the features and labels of its steps.

        The next step overwrites the features.
        """
        where = self.shards.at(plan.positions)
        clients = zip(
            *(values.unbind(1) for values in (*where, plan.counts)), strict=True
        )
        for k, (rows, labels, counts) in enumerate(clients):
            yield self._steps(k, rows, labels, counts.tolist())

    def _steps(
        self, k: int, rows: torch.Tensor, labels: torch.Tensor, counts: list[int]
    ) -> Iterator[tuple[Inputs, torch.Tensor]]:
        for row, label, count in zip(rows, labels, counts, strict=True):
            if count:
                x = self.shards.samples.features(row[:count], self._room(count))
                if self.augmentation is not None:
                    x = self.augmentation.one(k, x)
                yield x, label[:count]

    def _room(self, samples: int) -> torch.Tensor:
        """Return a buffer for the features of this many samples."""
        need = samples * prod(self.shards.samples.shape)
        if self.buffer is None or self.buffer.numel() < need:
            self.buffer = torch.empty(need)
        return self.buffer

    @property
    def sizes(self) -> Ints:
        """Samples per client."""
        return self.shards.sizes

    @property
    def offsets(self) -> Ints:
        """Where each client's samples begin."""
        return self.shards.offsets
