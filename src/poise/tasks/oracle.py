"""The gradient oracle of a task on a federation of samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

import numpy as np
import torch

from poise.core.batches import Batch
from poise.core.rng import U64
from poise.core.samples import Samples, Shards
from poise.core.types import Floats, Ints
from poise.core.vectors import Layout, Stack, Vector
from poise.tasks.kernels import Kernel
from poise.tasks.losses import PerSample


class HasShards(Protocol):
    """What an oracle needs of a federation."""

    @property
    def clients(self) -> int:
        """Number of clients."""

    @property
    def importance(self) -> Floats:
        """p, (N,)."""

    @property
    def test_shard(self) -> Shards | None:
        """Held-out samples."""

    def shards(self, clients: Ints) -> Shards:
        """The samples of these clients."""


@dataclass
class Opened:
    """The data of some clients, the streams of their random layers, and memory for their batches."""

    shards: Shards
    generators: list[torch.Generator] | None
    buffer: torch.Tensor | None = None

    def take(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Features and labels at these positions; the features are overwritten by the next call."""
        need = positions.numel() * prod(self.shards.samples.shape)
        if self.buffer is None or self.buffer.numel() < need:
            self.buffer = torch.empty(need)
        return self.shards.take(positions, self.buffer)

    @property
    def sizes(self) -> Ints:
        """Samples per client."""
        return self.shards.sizes

    @property
    def offsets(self) -> Ints:
        """Where each client's samples begin."""
        return self.shards.offsets


@dataclass(frozen=True)
class SampleOracle:
    """Losses and gradients of a model on clients' samples."""

    federation: HasShards
    kernel: Kernel
    start: Callable[[int], Vector]  # seed -> initial model
    loss: PerSample
    scores: dict[str, PerSample]
    device: torch.device

    batches = True

    @property
    def layout(self) -> Layout:
        """Where each tensor lies in the vector."""
        return self.kernel.layout

    @property
    def metrics(self) -> frozenset[str]:
        """Metrics of the held-out data, and of the clients' own."""
        names = {"loss", *self.scores}
        held_out = names if self.federation.test_shard is not None else set()
        return frozenset(held_out | {f"client_{name}" for name in names} | {f"train_{name}" for name in names})

    def initial(self, seed: int) -> Vector:
        """The model that a run with this seed starts from."""
        return self.start(seed).to(self.device)

    def rows(self, batch_size: int | None) -> int:
        """How many clients to put into one call."""
        return self.kernel.rows(batch_size or 256)

    def open(self, clients: Ints, streams: U64) -> Opened:
        """The data of these clients."""
        self.kernel.begin()
        generators = None
        if self.kernel.random:
            generators = [torch.Generator().manual_seed(int(s) >> 1) for s in streams.tolist()]
        return Opened(self.federation.shards(clients), generators)

    def gradients(self, rows: Stack, data: Opened, batch: Batch, out: Stack) -> None:
        """Write the gradient of each row on its batch into ``out``."""
        x, y = self._here(*data.take(batch.positions))
        self.kernel.gradients(rows, x, y, batch.counts, batch.full, data.generators, out)

    def losses(self, rows: Stack, data: Opened) -> Floats:
        """Mean loss of each row over all data of its client."""
        ends = data.offsets.tolist()
        sums = [self._sums(rows[k], data.shards, (ends[k], ends[k + 1]), {"loss"}) for k in range(len(rows))]
        return np.array([s["loss"] for s in sums]) / data.sizes

    def measure(self, theta: Vector, names: frozenset[str], spread: Callable[..., list[Any]]) -> dict[str, Any]:
        """Metrics on the held-out data (``loss``, …) and on the clients' (``client_loss``, ``train_loss``)."""
        result: dict[str, Any] = {}
        own = {n.removeprefix("client_").removeprefix("train_") for n in names if n.startswith(("client_", "train_"))}
        held_out = {n for n in names if n in self.scores or n == "loss"}
        shard = self.federation.test_shard
        if held_out and shard is not None:
            parts = spread(
                lambda span: self._sums(theta, shard, span, held_out), _blocks(len(shard.rows), self.kernel.block)
            )
            result |= {name: sum(p[name] for p in parts) / len(shard.rows) for name in sorted(held_out)}
        if own:
            each = spread(lambda i: self._of_client(theta, i, own), range(self.federation.clients))
            for name in sorted(own):
                values = np.array([e[name] for e in each])
                result |= {f"client_{name}": values, f"train_{name}": float(self.federation.importance @ values)}
        return {name: result[name] for name in sorted(names)}

    def _of_client(self, theta: Vector, client: int, names: set[str]) -> dict[str, float]:
        shard = self.federation.shards(np.array([client]))
        sums = self._sums(theta, shard, (0, len(shard.rows)), names)
        return {name: value / len(shard.rows) for name, value in sums.items()}

    def _sums(self, theta: Vector, shard: Shards, span: tuple[int, int], names: set[str]) -> dict[str, float]:
        """Sums of per-sample values over a span of positions of a shard."""
        self.kernel.begin()
        totals = dict.fromkeys(names, 0.0)
        for a, b in _blocks(span[1], self.kernel.block, span[0]):
            x, y = self._here(*shard.take(torch.arange(a, b)))
            outputs = self.kernel.outputs(theta, x)
            for name in names:
                values = (self.loss if name == "loss" else self.scores[name])(outputs, y)
                totals[name] += float(values.sum(dtype=torch.float64)) if values.dim() else float(values) * (b - a)
        return totals

    def _here(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (x, y) if self.device.type == "cpu" else (x.to(self.device), y.to(self.device))


def _blocks(stop: int, size: int, start: int = 0) -> list[tuple[int, int]]:
    return [(a, min(a + size, stop)) for a in range(start, stop, size)]


def example_of(samples: Samples) -> torch.Tensor:
    """Two samples' worth of model input, to probe a module with."""
    return samples.features(torch.zeros(2, dtype=torch.int64))
