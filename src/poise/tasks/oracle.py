"""`SampleOracle`: losses and gradients of a task on the samples of a federation."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import nn

from poise.core.batches import Batch, BatchPlan
from poise.core.curvature import ConvexKind, Curvature
from poise.core.errors import InvalidOption, require
from poise.core.rng import U64
from poise.core.samples import Samples, Shards
from poise.core.types import Floats, Ints
from poise.core.vectors import Layout, Stack, Vector
from poise.tasks.curvature import linear_curvature
from poise.tasks.dense import DenseKernel
from poise.tasks.kernels import Kernel
from poise.tasks.losses import PerSample
from poise.tasks.rowwise import RowKernel


class HasShards(Protocol):
    """The members of a federation that an oracle needs."""

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
        """Return the samples of these clients."""


@runtime_checkable
class HasClientTests(Protocol):
    """A federation whose clients may have their own test samples."""

    @property
    def has_client_test(self) -> bool:
        """Whether the clients have test samples."""

    def client_test_shards(self, clients: Ints) -> Shards:
        """Return the test samples of these clients."""


@dataclass
class Opened:
    """The samples of a group of clients, the streams of their random layers, and a batch buffer."""

    shards: Shards
    generators: list[torch.Generator] | None
    buffer: torch.Tensor | None = None

    def take(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return features and labels at these positions; the next call overwrites the features."""
        return self.shards.take(positions, self._room(positions.numel()))

    def follow(
        self, plan: BatchPlan
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor, Batch]]:
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
            yield (
                self.shards.samples.features(rows, self._room(rows.numel())),
                labels,
                batch,
            )

    def apart(
        self, plan: BatchPlan
    ) -> Iterator[Iterator[tuple[torch.Tensor, torch.Tensor]]]:
        """Yield for each client the features and labels of its steps.

        The next step overwrites the features.
        """
        where = self.shards.at(plan.positions)
        for rows, labels, counts in zip(
            *(values.unbind(1) for values in (*where, plan.counts)), strict=True
        ):
            yield self._steps(rows, labels, counts.tolist())

    def _steps(
        self, rows: torch.Tensor, labels: torch.Tensor, counts: list[int]
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for row, label, count in zip(rows, labels, counts, strict=True):
            if count:
                yield (
                    self.shards.samples.features(row[:count], self._room(count)),
                    label[:count],
                )

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


@dataclass(frozen=True)
class SampleOracle:
    """Losses and gradients of a model on clients' samples."""

    federation: HasShards
    kernel: Kernel
    start: Callable[[int], Vector]  # seed -> initial model
    loss: PerSample
    scores: dict[str, PerSample]
    device: torch.device
    # the architecture, with the values of its frozen parameters
    module: nn.Module | None
    convex: ConvexKind | None = None  # the kind of a linear model's loss

    batches = True

    @property
    def layout(self) -> Layout:
        """The position of each tensor in the vector."""
        return self.kernel.layout

    @property
    def stacked(self) -> bool:
        """Whether the clients of one call are computed together."""
        return isinstance(self.kernel, DenseKernel)

    @property
    def metrics(self) -> frozenset[str]:
        """Names of the metrics on the held-out data and on the clients' data."""
        names = {"loss", *self.scores}
        known = set(names) if self.federation.test_shard is not None else set()
        prefixes = ["client_", "train_"]
        if (
            isinstance(self.federation, HasClientTests)
            and self.federation.has_client_test
        ):
            prefixes += ["client_test_", "own_"]
        return frozenset(
            known | {prefix + name for prefix in prefixes for name in names}
        )

    @property
    def frozen(self) -> str:
        """A hash of the frozen parameters, which are part of the task; empty if there are none."""
        named = () if self.module is None else self.module.named_parameters()
        values = [(name, p) for name, p in named if not p.requires_grad]
        if not values:
            return ""
        total = hashlib.blake2b(digest_size=16)
        for name, value in values:
            stored = value.detach().cpu().contiguous().view(torch.uint8).numpy()
            total.update(name.encode() + stored.tobytes())
        return total.hexdigest()

    def initial(self, seed: int) -> Vector:
        """Return the initial model of a run with this seed."""
        return self.start(seed).to(self.device)

    def rows(self, batch_size: int | None) -> int:
        """Return how many clients to put into one call."""
        return self.kernel.rows(batch_size or 256)

    def curvature(self, batch_size: int | None) -> Curvature | None:
        """Return bounds of the clients' Hessians; None if the losses are not convex."""
        if self.convex is None:
            return None
        shards = self.federation.shards(np.arange(self.federation.clients))
        if not len(shards.rows):  # the samples are elsewhere
            return None
        outputs = max(shards.samples.classes, 1)
        return linear_curvature(shards, self.convex, outputs, batch_size)

    def open(self, clients: Ints, streams: U64) -> Opened:
        """Open the data of these clients."""
        self.kernel.begin()
        generators = None
        if self.kernel.random:
            generators = [
                torch.Generator().manual_seed(int(s) >> 1) for s in streams.tolist()
            ]
        return Opened(self.federation.shards(clients), generators)

    def gradients(self, rows: Stack, data: Opened, batch: Batch, out: Stack) -> None:
        """Write the gradient of each row on its batch into ``out``."""
        x, y = self._here(*data.take(batch.positions))
        counts = batch.counts
        full = batch.full
        self.kernel.gradients(
            rows, x, y=y, counts=counts, full=full, generators=data.generators, out=out
        )

    def descend(self, rows: Stack, data: Opened, plan: BatchPlan, rate: float) -> None:
        """Make all plain gradient steps of each row, in place."""
        if isinstance(self.kernel, DenseKernel):
            step = self.kernel.descender(rows, rate)
            for x, y, batch in data.follow(plan):
                step(*self._here(x, y), batch.counts, batch.full)
        elif isinstance(self.kernel, RowKernel):
            for k, batches in enumerate(data.apart(plan)):
                stream = None if data.generators is None else data.generators[k]
                on_device = (self._here(*batch) for batch in batches)
                self.kernel.descend(rows[k], on_device, rate=rate, stream=stream)
        else:
            raise TypeError(f"{type(self.kernel).__name__} cannot make gradient steps")

    def losses(self, rows: Stack, data: Opened) -> Floats:
        """Return the mean loss of each row over all data of its client."""
        ends = data.offsets.tolist()
        sums = [
            self._sums(rows[k], data.shards, (ends[k], ends[k + 1]), {"loss"})
            for k in range(len(rows))
        ]
        return np.array([s["loss"] for s in sums]) / data.sizes

    def sample_losses(self, theta: Vector, shards: Shards) -> Floats:
        """Return the loss of a model on each sample of these shards, in their order."""
        self.kernel.begin()
        values = [np.zeros(0)]
        for a, b in blocks(len(shards.rows), self.kernel.block):
            x, y = self._here(*shards.take(torch.arange(a, b)))
            losses = self.loss(self.kernel.outputs(theta, x), y)
            require(
                losses.dim() > 0,
                "the task's loss returns one mean, not one value per sample",
                "return one loss per sample",
            )
            values.append(losses.detach().double().cpu().numpy())
        return np.concatenate(values)

    def measure(
        self,
        theta: Vector,
        names: frozenset[str],
        map_workers: Callable[..., list[Any]],
        version: Callable[[Vector, int], Vector] = lambda theta, client: theta,
    ) -> dict[str, Any]:
        """Return metrics on the held-out data and on the clients' data.

        ``loss``, ``accuracy``, …: on `test_shard`. ``client_*`` (N,) and ``train_*``
        (their mean by importance): on the clients' training data. ``client_test_*``
        (N,) and ``own_*``: on the clients' own test data. ``version(theta, i)`` is
        client i's version of the model, if it has personal layers.
        """
        result: dict[str, Any] = {}
        held_out = {n for n in names if n in self.scores or n == "loss"}
        shard = self.federation.test_shard
        if held_out and shard is not None:
            spans = blocks(len(shard.rows), self.kernel.block)
            parts = map_workers(
                lambda span: self._sums(theta, shard, span, held_out), spans
            )
            for name in sorted(held_out):
                result[name] = sum(part[name] for part in parts) / len(shard.rows)
        for per_client, mean, shards in (
            ("client_test_", "own_", self._tests),
            ("client_", "train_", self.federation.shards),
        ):
            metrics = self._metrics_with_prefix(
                (per_client, mean), names=names.difference(result)
            )
            if not metrics:
                continue
            each = map_workers(
                lambda i, shards=shards, metrics=metrics: self._mean(
                    version(theta, i), shards(np.array([i])), metrics
                ),
                range(self.federation.clients),
            )
            for name in sorted(metrics):
                values = np.array([client[name] for client in each])
                measured = ~np.isnan(values)
                weights = self.federation.importance[measured]
                result[per_client + name] = values
                result[mean + name] = float(weights @ values[measured] / weights.sum())
        return {name: result[name] for name in sorted(names)}

    def _metrics_with_prefix(
        self, prefixes: tuple[str, ...], names: frozenset[str]
    ) -> set[str]:
        """Return the metrics whose name, with one of the prefixes, is among the names."""
        known = {"loss", *self.scores}
        return {
            metric for metric in known if any(p + metric in names for p in prefixes)
        }

    def _tests(self, clients: Ints) -> Shards:
        # `metrics` names these metrics only then
        assert isinstance(self.federation, HasClientTests)
        return self.federation.client_test_shards(clients)

    def _mean(self, theta: Vector, shard: Shards, names: set[str]) -> dict[str, float]:
        """Return the means over a client's samples; nan for a client without samples."""
        if not len(shard.rows):
            return dict.fromkeys(names, float("nan"))
        sums = self._sums(theta, shard, (0, len(shard.rows)), names)
        return {name: value / len(shard.rows) for name, value in sums.items()}

    def _sums(
        self, theta: Vector, shard: Shards, span: tuple[int, int], names: set[str]
    ) -> dict[str, float]:
        """Return the sums of per-sample values over a span of positions of a shard."""
        self.kernel.begin()
        totals = dict.fromkeys(names, 0.0)
        for a, b in blocks(span[1], self.kernel.block, span[0]):
            x, y = self._here(*shard.take(torch.arange(a, b)))
            outputs = self.kernel.outputs(theta, x)
            for name in names:
                function = self.loss if name == "loss" else self.scores[name]
                values = function(outputs, y)
                if values.dim():
                    totals[name] += float(values.sum(dtype=torch.float64))
                else:  # the function returns the mean of the block
                    totals[name] += float(values) * (b - a)
        return totals

    def _here(
        self, x: torch.Tensor, y: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return features and labels on the oracle's device."""
        if self.device.type == "cpu":
            return x, y
        return x.to(self.device), y.to(self.device)


def blocks(stop: int, size: int, start: int = 0) -> list[tuple[int, int]]:
    """Return the spans of at most ``size`` positions from ``start`` to ``stop``."""
    return [(a, min(a + size, stop)) for a in range(start, stop, size)]


def example_of(samples: Samples) -> torch.Tensor:
    """Return the model input of two samples, to test a module with."""
    return samples.features(torch.zeros(2, dtype=torch.int64))


def device_named(name: str) -> torch.device:
    """Return a device by its name; raises if this machine has none of that name."""
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InvalidOption(
            f"device {name!r} does not exist here", "use 'cpu'"
        ) from error
    return device
