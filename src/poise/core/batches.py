"""Which samples each client uses at each local step.

Batches are drawn without replacement within an epoch; the last batch of an epoch is as
small as the number of samples left. A client's batches depend on (seed, version,
client) and its own size, never on the other clients of the cohort.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from poise.core.rng import U64, permutations, words
from poise.core.types import Ints


@dataclass(frozen=True)
class Batch:
    """Positions of one step's samples inside the clients' shards.

    Row k has ``counts[k]`` samples. A short row is filled up with its first position;
    the filling must get weight zero.
    """

    positions: torch.Tensor  # (a, b) int64
    counts: torch.Tensor  # (a,) int64
    full: bool  # every row has b samples

    def split(self, parts: int) -> Iterator[tuple[Batch, torch.Tensor]]:
        """Yield this many smaller batches, and the share of each row's samples in them.

        The mean gradient of a row is the sum of its shares times the gradients of the
        parts. A row with fewer samples than parts repeats a sample, with share 0.
        """
        width = -(-self.positions.shape[1] // parts)
        columns = torch.arange(width)
        for part in range(parts):
            begin = self.counts * part // parts
            counts = self.counts * (part + 1) // parts - begin
            inside = columns < counts[:, None]
            places = torch.where(inside, begin[:, None] + columns, begin[:, None])
            positions = self.positions.gather(1, places)
            shares = counts.double() / self.counts
            counts = counts.clamp(min=1)
            yield Batch(positions, counts, bool((counts == width).all())), shares


@dataclass(frozen=True)
class BatchPlan:
    """All batches of m clients; iterating yields one `Batch` per local step.

    The clients must be ordered by their number of steps, most first, so that the
    clients still working at step k are a prefix.
    """

    positions: torch.Tensor  # (K, m, b)
    counts: torch.Tensor  # (K, m); 0 after a client's last step

    @classmethod
    def draw(
        cls,
        streams: U64,
        sizes: Ints,
        offsets: Ints,
        steps: Ints,
        batch_size: int | None,
    ) -> BatchPlan:
        """Draw batches for clients with these stream keys, sizes and steps."""
        width = int(batch_widths(sizes, batch_size).max())
        positions = np.zeros((int(steps.max()), len(sizes), width), dtype=np.int64)
        counts = np.zeros(positions.shape[:2], dtype=np.int64)
        for size, count in sorted(
            set(zip(sizes.tolist(), steps.tolist(), strict=True))
        ):
            rows = np.flatnonzero((sizes == size) & (steps == count))
            b = min(size, batch_size or size)
            order, lengths = _epochs(streams[rows], size, steps=count, b=b)
            positions[:count, rows, :b] = order
            counts[:count, rows] = lengths[:, None]
            if b < positions.shape[2]:
                positions[:count, rows, b:] = order[:, :, :1]
        positions += offsets[None, :, None]
        return cls(torch.from_numpy(positions), torch.from_numpy(counts))

    def __len__(self) -> int:
        return len(self.positions)

    def __iter__(self) -> Iterator[Batch]:
        """Yield the batch of each step, for the clients that still work."""
        _, clients, width = self.positions.shape
        active = (self.counts > 0).sum(1)
        full = (self.counts == width).sum(1) == active
        for positions, counts, m, whole in zip(
            self.positions, self.counts, active.tolist(), full.tolist(), strict=True
        ):
            if m == clients:
                yield Batch(positions, counts, whole)
            else:
                yield Batch(positions[:m], counts[:m], whole)


def batch_widths(sizes: Ints, batch_size: int | None) -> Ints:
    """Return how many positions a client's batches take, padding included.

    A client with fewer samples than the batch size (or any client, if a step takes all
    samples) is padded to the next of 1, 2, 3, 4, 6, 8, 12, 16, … Clients of similar
    size can then work in one stack, and each keeps the shape that it has alone: the
    result has the same bits whatever other clients the cohort has.

    >>> batch_widths(np.array([5, 9, 40, 100]), 50)
    array([ 6, 12, 48, 50])
    """
    power = 2 ** np.floor(np.log2(np.maximum(sizes, 1))).astype(np.int64)
    above_power = np.where(2 * sizes <= 3 * power, 3 * power // 2, 2 * power)
    widths = np.where(sizes <= power, power, above_power)
    if batch_size is not None:
        widths = np.minimum(widths, batch_size)
    return np.asarray(widths, dtype=np.int64)


def _epochs(streams: U64, size: int, steps: int, b: int) -> tuple[Ints, Ints]:
    """Draw for clients of one size: positions (steps, rows, b), lengths (steps,)."""
    per_epoch = -(-size // b)
    slots = np.arange(steps) % per_epoch
    lengths = np.minimum(b, size - slots * b)
    order = np.zeros(
        (len(streams), -(-steps // per_epoch), per_epoch * b), dtype=np.int64
    )
    for epoch in range(order.shape[1]):
        need = min(size, (steps - epoch * per_epoch) * b)
        drawn = permutations(words(streams, 1, start=epoch)[:, 0], size, need)
        order[:, epoch, : drawn.shape[1]] = drawn
        order[:, epoch, drawn.shape[1] :] = drawn[:, :1]
    batches = order.reshape(len(streams), -1, b)[:, :steps]
    short = lengths < b
    if (
        short.any()
    ):  # fill a short batch with its own first sample, never with another epoch's
        tail = np.arange(b)[None, :] >= lengths[:, None]
        batches = np.where(tail[None], batches[:, :, :1], batches)
    return batches.transpose(1, 0, 2), lengths
