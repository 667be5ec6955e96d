"""A small federation of samples in memory, for tests of tasks, solvers and backends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from poise.core.samples import Samples, Shards
from poise.core.types import Floats, Ints


@dataclass(frozen=True, eq=False)
class SampleFederation:
    """Clients with consecutive samples of a pool; the last ``held_out`` are for tests.

    Args:
        samples: the pool.
        sizes: samples per client, (N,).
        held_out: samples at the end of the pool to measure on.

    >>> fed = SampleFederation.random([3, 5], shape=(4,), classes=2)
    >>> fed.clients, len(fed.samples), fed.importance.tolist()
    (2, 24, [0.375, 0.625])
    """

    samples: Samples
    sizes: Ints
    held_out: int = 16

    on_demand = False
    spec = None

    @classmethod
    def random(
        cls,
        sizes: Sequence[int],
        shape: tuple[int, ...] = (6,),
        classes: int = 3,
        seed: int = 0,
        vocabulary: int = 0,
        held_out: int = 16,
    ) -> SampleFederation:
        """Return random samples: tokens if a vocabulary is given, else numbers.

        ``classes=0`` makes a regression.
        """
        n = int(sum(sizes)) + held_out
        source = torch.Generator().manual_seed(seed)
        tokens = torch.randint(max(vocabulary, 1), (n, *shape), generator=source)
        if vocabulary:
            raw = tokens.to(torch.uint8)
        else:
            raw = torch.randn(n, *shape, generator=source)
        if classes:
            labels = torch.randint(classes, (n,), generator=source)
        else:
            labels = torch.randn(n, generator=source)
        pool = Samples(
            raw, labels, tokens=vocabulary > 0, classes=classes, vocabulary=vocabulary
        )
        return cls(pool, np.array(sizes, dtype=np.int64), held_out)

    @property
    def clients(self) -> int:
        """Number of clients."""
        return len(self.sizes)

    @property
    def importance(self) -> Floats:
        """p_i = n_i / sum n_j."""
        return np.asarray(self.sizes / self.sizes.sum(), dtype=np.float64)

    @property
    def test_shard(self) -> Shards | None:
        """Held-out samples."""
        if self.held_out:
            return self._shard([(int(self.sizes.sum()), len(self.samples))])
        return None

    def shards(self, clients: Ints) -> Shards:
        """Return the samples of these clients."""
        ends = np.cumsum(self.sizes)
        return self._shard(
            [(int(ends[i] - self.sizes[i]), int(ends[i])) for i in clients]
        )

    def _shard(self, spans: list[tuple[int, int]]) -> Shards:
        rows = torch.cat([torch.arange(a, b) for a, b in spans])
        offsets = np.cumsum([0, *(b - a for a, b in spans)])
        return Shards(
            self.samples, rows, self.samples.labels[rows], offsets.astype(np.int64)
        )
