"""`SampleOracle`: losses and gradients of a task on the samples of a federation."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import nn

from poise.core.batches import Batch, BatchPlan
from poise.core.curvature import ConvexKind, Curvature
from poise.core.errors import require
from poise.core.local_models import LocalModel, no_local_model
from poise.core.rng import U64
from poise.core.samples import Samples, Shards
from poise.core.trees import Inputs, mapped
from poise.core.types import Floats, Ints
from poise.core.vectors import Layout, Stack, Vector, task_tensors
from poise.metrics.metric import Metric, State
from poise.tasks.curvature import linear_curvature
from poise.tasks.dense import DenseKernel
from poise.tasks.forms import form_text
from poise.tasks.functional import FunctionalKernel
from poise.tasks.kernels import Kernel
from poise.tasks.losses import PerSample
from poise.tasks.measurable import Population, check_measurable, client_sets
from poise.tasks.opened import Opened
from poise.tasks.probe import refuses_one
from poise.tasks.rowwise import RowKernel
from poise.tasks.totals import Totals, measuring, values_of
from poise.tasks.transforms import Augmentation, Transform

TEST = "the test data"


def frozen_hash(module: nn.Module | None) -> str:
    """Return a hash of the tensors that belong to the task; empty if there are none."""
    values = {} if module is None else task_tensors(module)
    if not values:
        return ""
    total = hashlib.blake2b(digest_size=16)
    for name, value in values.items():
        stored = value.detach().cpu().reshape(-1).view(torch.uint8).numpy()
        total.update(name.encode() + stored.tobytes())
    return total.hexdigest()


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


@dataclass(frozen=True)
class Variant:
    """A variant of every metric: on which data of the clients, and of which model.

    Args:
        per_client: the prefix of the values per client.
        mean: the prefix of their mean by importance.
        shards: the samples of clients.
        data: these samples, in words.
        after_work: whether the client's model after its work is measured.
    """

    per_client: str
    mean: str
    shards: Callable[[Ints], Shards]
    data: str
    after_work: bool = False


@dataclass(frozen=True)
class SampleOracle:
    """Losses and gradients of a model on clients' samples."""

    federation: HasShards
    kernel: Kernel
    start: Callable[[int], Vector]  # seed -> initial model
    loss: PerSample
    scores: dict[str, PerSample]
    device: torch.device
    # the architecture, with the values of its frozen tensors
    module: nn.Module | None
    convex: ConvexKind | None = None  # the kind of a linear model's loss
    set_metrics: Mapping[str, Metric] = field(default_factory=dict)
    transform: Transform | None = None  # random changes of samples in training
    computation: str = ""  # the kernel and why it was chosen

    batches = True

    @property
    def layout(self) -> Layout:
        """The position of each tensor in the vector."""
        return self.kernel.layout

    @property
    def sample_form(self) -> str:
        """The form of a sample, from which the model can be made without the data."""
        return form_text(self.federation.shards(np.zeros(1, dtype=np.int64)).samples)

    def least_samples(self) -> int:
        """Return the least number of samples of a training batch: 2 with batch norm."""
        samples = self.federation.shards(np.zeros(1, dtype=np.int64)).samples
        example = example_of(samples, 1)
        if self.module is not None and refuses_one(self.module, example):
            return 2
        return 1

    def stacks(self, samples: int) -> bool:
        """Whether one call computes its clients together for batches of this size."""
        return isinstance(self._kernel(samples), DenseKernel | FunctionalKernel)

    def _kernel(self, samples: int) -> Kernel:
        """Return the kernel of steps with batches of this size."""
        kernel = self.kernel
        if isinstance(kernel, FunctionalKernel) and not kernel.together(samples):
            return kernel.alone
        return kernel

    @property
    def metrics(self) -> frozenset[str]:
        """Names of the metrics on the held-out data and on the clients' data."""
        names = self._names
        known = set(names) if self.federation.test_shard is not None else set()
        prefixes = ["client_", "train_"]
        if (
            isinstance(self.federation, HasClientTests)
            and self.federation.has_client_test
        ):
            prefixes += ["client_test_", "own_", "client_local_", "local_"]
        return frozenset(
            known | {prefix + name for prefix in prefixes for name in names}
        )

    @property
    def _names(self) -> set[str]:
        """Names of the metrics without prefix."""
        return {"loss", *self.scores, *self.set_metrics}

    @property
    def frozen(self) -> str:
        """A hash of the tensors that are part of the task; empty if there are none."""
        return frozen_hash(self.module)

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
        augmentation = None
        if self.transform is not None:
            augmentation = Augmentation.of(self.transform, streams)
        shards = self.federation.shards(clients)
        return Opened(shards, generators, augmentation=augmentation)

    def gradients(self, rows: Stack, data: Opened, batch: Batch, out: Stack) -> None:
        """Write the gradient of each row on its batch into ``out``."""
        x, y = self._here(*data.take_batch(batch))
        counts = batch.counts
        full = batch.full
        self._kernel(batch.positions.shape[1]).gradients(
            rows, x, y=y, counts=counts, full=full, generators=data.generators, out=out
        )

    def descend(
        self, start: Stack, data: Opened, plan: BatchPlan, rate: float, out: Stack
    ) -> None:
        """Write each row of ``start`` after all plain gradient steps into ``out``."""
        kernel = self._kernel(plan.positions.shape[2])
        if isinstance(kernel, DenseKernel | FunctionalKernel):
            steps = ((*self._here(x, y), batch) for x, y, batch in data.follow(plan))
            kernel.descend(start, steps, rate, out=out)
        elif isinstance(kernel, RowKernel):
            for k, batches in enumerate(data.apart(plan)):
                stream = None if data.generators is None else data.generators[k]
                on_device = (self._here(*batch) for batch in batches)
                kernel.descend(start[k], on_device, rate, stream=stream, out=out[k])
        else:
            raise TypeError(f"{type(kernel).__name__} cannot make gradient steps")

    def losses(self, rows: Stack, data: Opened) -> Floats:
        """Return the mean loss of each row over all data of its client."""
        ends = data.offsets.tolist()
        totals = [
            self._totals(rows[k], data.shards, (ends[k], ends[k + 1]), {"loss"})
            for k in range(len(rows))
        ]
        return np.array([t.sums["loss"] for t in totals]) / data.sizes

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
        local: LocalModel = no_local_model,
    ) -> dict[str, Any]:
        """Return metrics on the held-out data and on the clients' data.

        ``loss``, ``accuracy``, …: on `test_shard`. ``client_*`` (N,) and ``train_*``
        (their mean by importance): on the clients' training data. ``client_test_*``
        (N,) and ``own_*``: on the clients' own test data. ``client_local_*`` (N,) and
        ``local_*``: likewise, of the models ``local(i)`` after the local work; nan for
        clients without work. ``version(theta, i)`` is client i's version of the model,
        if it has personal layers.
        """
        result: dict[str, Any] = {}
        held_out = names & self._names
        shard = self.federation.test_shard
        if held_out and shard is not None:
            spans = blocks(len(shard.rows), self.kernel.block)
            parts = map_workers(
                lambda span: self._totals(theta, shard, span, held_out), spans
            )
            result |= values_of(parts, self.set_metrics, len(shard.rows), TEST)
        for variant in self._variants():
            per_client = variant.per_client
            mean = variant.mean
            metrics = self._metrics_with_prefix(
                (per_client, mean), names=names.difference(result)
            )
            if not metrics:
                continue

            def values(
                i: int, variant: Variant = variant, metrics: set[str] = metrics
            ) -> dict[str, float]:
                model = local(i) if variant.after_work else version(theta, i)
                if model is None:
                    return dict.fromkeys(metrics, float("nan"))
                shards = variant.shards(np.array([i]))
                where = f"the data of client {i}"
                return self._values(model, shards, names=metrics, where=where)

            each = map_workers(values, range(self.federation.clients))
            for name in sorted(metrics):
                by_client = np.array([client[name] for client in each])
                measured = ~np.isnan(by_client)
                weights = self.federation.importance[measured]
                result[per_client + name] = by_client
                result[mean + name] = float("nan")
                if measured.any():
                    result[mean + name] = float(
                        weights @ by_client[measured] / weights.sum()
                    )
        return {name: result[name] for name in sorted(names)}

    def check_metrics(self, names: frozenset[str]) -> None:
        """Raise if one of these metrics of a set has no value on any of its data."""
        for metric in sorted(self.set_metrics):
            for population in self._populations(metric, names):
                check_measurable(
                    metric, self.set_metrics[metric], population, self._try
                )

    def _populations(self, metric: str, names: frozenset[str]) -> Iterator[Population]:
        """Yield the data on which the named variants of a metric are measured."""
        test = self.federation.test_shard
        if metric in names and test is not None:
            yield Population(TEST, lambda: iter([(TEST, test)]))
        clients = range(self.federation.clients)
        for variant in self._variants():
            if {variant.per_client + metric, variant.mean + metric} & names:
                yield Population(
                    f"the {variant.data} of any client",
                    lambda variant=variant: client_sets(  # type: ignore[misc]
                        clients, lambda i: variant.shards(np.array([i])), variant.data
                    ),
                )

    def _try(self, metric: str, shard: Shards, where: str) -> None:
        """Measure the initial model once, for a function that may fail on these data."""
        self._values(self.initial(0), shard, names={metric}, where=where)

    def _variants(self) -> tuple[Variant, ...]:
        """Return the variants of metrics that are measured on the clients' data."""
        test = "test data"
        return (
            Variant("client_test_", "own_", self._tests, data=test),
            Variant("client_local_", "local_", self._tests, data=test, after_work=True),
            Variant("client_", "train_", self.federation.shards, data="data"),
        )

    def _metrics_with_prefix(
        self, prefixes: tuple[str, ...], names: frozenset[str]
    ) -> set[str]:
        """Return the metrics whose name, with one of the prefixes, is among the names."""
        return {
            metric
            for metric in self._names
            if any(p + metric in names for p in prefixes)
        }

    def _tests(self, clients: Ints) -> Shards:
        # `metrics` names these metrics only then
        assert isinstance(self.federation, HasClientTests)
        return self.federation.client_test_shards(clients)

    def _values(
        self, theta: Vector, shard: Shards, names: set[str], where: str
    ) -> dict[str, float]:
        """Return the metrics on a client's samples; nan for a client without samples."""
        count = len(shard.rows)
        if not count:
            return dict.fromkeys(names, float("nan"))
        totals = self._totals(theta, shard, (0, count), names)
        return values_of([totals], self.set_metrics, count, where)

    def _totals(
        self,
        theta: Vector,
        shard: Shards,
        span: tuple[int, int],
        names: set[str] | frozenset[str],
    ) -> Totals:
        """Return sums of per-sample values, and states of set metrics, over a span."""
        self.kernel.begin()
        of_set = sorted(self.set_metrics.keys() & names)
        sums = dict.fromkeys(sorted(names.difference(of_set)), 0.0)
        states: dict[str, State] = {n: self.set_metrics[n].init() for n in of_set}
        for a, b in blocks(span[1], self.kernel.block, span[0]):
            x, y = self._here(*shard.take(torch.arange(a, b)))
            with measuring("the model"):
                outputs = self.kernel.outputs(theta, x)
            for name in sums:
                function = self.loss if name == "loss" else self.scores[name]
                with measuring(f"the metric {name!r}"):
                    values = function(outputs, y)
                if values.dim():
                    sums[name] += float(values.sum(dtype=torch.float64))
                else:  # the function returns the mean of the block
                    sums[name] += float(values) * (b - a)
            for name in of_set:
                metric = self.set_metrics[name]
                with measuring(f"the metric {name!r}"):
                    states[name] = metric.update(states[name], outputs, y)
        return Totals(sums, states)

    def _here(self, x: Inputs, y: torch.Tensor) -> tuple[Inputs, torch.Tensor]:
        """Return features and labels on the oracle's device."""
        if self.device.type == "cpu":
            return x, y
        return mapped(lambda part: part.to(self.device), x), y.to(self.device)


def blocks(stop: int, size: int, start: int = 0) -> list[tuple[int, int]]:
    """Return the spans of at most ``size`` positions from ``start`` to ``stop``."""
    return [(a, min(a + size, stop)) for a in range(start, stop, size)]


def example_of(samples: Samples, count: int = 2) -> Inputs:
    """Return the model input of a few samples, to test a module with."""
    return samples.features(torch.zeros(count, dtype=torch.int64))
