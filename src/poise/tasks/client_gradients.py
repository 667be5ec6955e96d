"""Gradients and losses of individual clients, on as much data as a budget allows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch

from poise.core.batches import Batch
from poise.core.capabilities import HasPrecision
from poise.core.federations import FederationLike, TaskLike
from poise.core.protocols import Oracle
from poise.core.rng import generator, keys
from poise.core.samples import Shards
from poise.core.types import Floats, Ints
from poise.core.vectors import Stack, Vector
from poise.tasks.opened import Opened
from poise.tasks.task import Task

BLOCK = 2_000_000
"""Maximum number of values of a batch in memory."""

HEAVY = 150
"""Assumed uses per parameter in convolutions and recurrences."""


@dataclass(frozen=True)
class Clients:
    """Clients of a federation with their data and the gradient oracle of a task."""

    oracle: Oracle
    numbers: Ints  # (m,)
    data: Any
    positions: tuple[torch.Tensor, ...]  # positions of the samples read, per client
    decay: float  # L2 penalty

    @classmethod
    def open(
        cls,
        oracle: Oracle,
        numbers: Ints,
        decay: float = 0.0,
        most: int | None = None,
        seed: int = 0,
    ) -> Clients:
        """Open clients with at most ``most`` random samples each."""
        data = oracle.open(numbers, keys(seed, "explain", numbers))
        if not oracle.batches:
            return cls(
                oracle,
                numbers,
                data,
                tuple(torch.zeros(1, dtype=torch.int64) for _ in numbers),
                decay,
            )
        if most is not None:
            data = replace(data, shards=_fewer(data.shards, numbers, most, seed))
        ends = data.offsets.tolist()
        read = tuple(torch.arange(a, b) for a, b in pairwise(ends))
        return cls(oracle, numbers, data, read, decay)

    @property
    def samples(self) -> int:
        """Samples read in one pass."""
        return sum(len(p) for p in self.positions)

    def gradients(self, rows: Stack) -> Stack:
        """The full gradient of each client at its own row, (m, trainable)."""
        trainable = self.oracle.layout.trainable
        total = rows.new_zeros((len(rows), trainable))
        sizes = torch.tensor([len(p) for p in self.positions])
        width = max(1, BLOCK // max(1, len(rows) * max(1, self._features())))
        for start in range(0, int(sizes.max()), width):
            counts = (sizes - start).clamp(0, width)
            total += (
                self._block(rows, start, counts)
                * counts[:, None].to(rows)
                / sizes[:, None].to(rows)
            )
        return total + self.decay * rows[:, :trainable]

    def _block(self, rows: Stack, start: int, counts: torch.Tensor) -> Stack:
        """Mean gradients over a block of positions; 0 for clients with none left."""
        out = rows.new_zeros((len(rows), self.oracle.layout.trainable))
        if not self.oracle.batches:
            ones = torch.ones(len(rows), dtype=torch.int64)
            self.oracle.gradients(
                rows,
                self.data,
                Batch(torch.zeros((len(rows), 1)).long(), ones, True),
                out,
            )
            return out
        active = torch.nonzero(counts > 0).ravel()
        width = int(counts.max())
        picked = [self.positions[k][start : start + width] for k in active.tolist()]
        table = torch.stack(
            [torch.cat([p, p[:1].repeat(width - len(p))]) for p in picked]
        )
        gradients = out.new_empty((len(active), out.shape[1]))
        data = self._data_of(active)
        with torch.no_grad():
            batch = Batch(table, counts[active], bool((counts[active] == width).all()))
            self.oracle.gradients(rows[active].clone(), data, batch, gradients)
        out[active] = gradients
        return out

    def _data_of(self, rows: torch.Tensor) -> Any:
        """The data with the random streams of these rows."""
        if not isinstance(self.data, Opened) or self.data.generators is None:
            return self.data
        return replace(
            self.data, generators=[self.data.generators[k] for k in rows.tolist()]
        )

    def _features(self) -> int:
        if not isinstance(self.data, Opened):
            return 1
        return int(np.prod(self.data.shards.samples.shape))

    def losses(self, rows: Stack) -> Floats:
        """F_i at each row, including the penalty, over the client's data."""
        penalty = (
            self.decay
            / 2
            * rows[:, : self.oracle.layout.trainable]
            .square()
            .sum(dim=1)
            .double()
            .numpy()
        )
        return np.asarray(
            self.oracle.losses(rows, self.data) + penalty, dtype=np.float64
        )

    def same(self, theta: Vector) -> Stack:
        """The same model for every client, as rows."""
        return theta.repeat(len(self.numbers), 1)


def _fewer(shards: Shards, numbers: Ints, most: int, seed: int) -> Shards:
    """At most ``most`` random samples of each client."""
    kept = []
    offsets = [0]
    for k, n in enumerate(shards.sizes.tolist()):
        drawn = np.arange(n)
        if n > most:
            drawn = np.sort(
                generator(seed, "explain", int(numbers[k])).choice(
                    n, most, replace=False
                )
            )
        kept.append(drawn + int(shards.offsets[k]))
        offsets.append(offsets[-1] + len(drawn))
    index = torch.from_numpy(np.concatenate(kept))
    return Shards(
        shards.samples,
        shards.rows[index],
        shards.labels[index],
        np.array(offsets, dtype=np.int64),
    )


def cost(oracle: Oracle) -> float:
    """Approximate number of multiplications for the gradient of one sample."""
    together = 6.0 * float(oracle.layout.trainable)
    if oracle.stacks(1):
        return together
    return together * HEAVY


def double(task: TaskLike) -> TaskLike:
    """The task in double precision, if it supports it, without its random transform."""
    if not isinstance(task, HasPrecision):
        return task
    if isinstance(task, Task):
        task = replace(task, transform=None)
    return cast(TaskLike, replace(cast(Any, task), dtype="float64"))


def some_clients(federation: FederationLike, most: int, seed: int = 0) -> Ints:
    """All clients, or ``most`` random ones."""
    n = int(federation.clients)
    if n <= most:
        return np.arange(n, dtype=np.int64)
    return np.sort(
        generator(seed, "explain clients").choice(n, most, replace=False)
    ).astype(np.int64)
