"""`TopK`: clients send only the largest entries of their updates."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

import numpy as np
import torch

from poise.core.errors import require
from poise.core.parts import part
from poise.core.protocols import Encoded
from poise.core.rng import U64
from poise.core.traits import ChannelTraits
from poise.core.types import Ints, Setting
from poise.core.vectors import Stack, Vector

RESIDUAL = "residual"
INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes per number


@part("channel", "top-k")
class TopK:
    """Each client sends the ``k = ceil(share d)`` largest of its d entries.

    With error feedback a client keeps the entries that it did not send, the residual,
    and adds them to its next update: ``sent + residual = update + residual before``,
    exactly. Among entries of equal magnitude the client sends the first ones.

    Encoding: ``index``, k positions in ascending order (int32), and ``value``, k
    numbers in the precision of the model: ``k (4 + b)`` bytes per update with b bytes
    per number. If `Plain` needs no more than that, ``d b`` bytes, the payload has no
    ``index``, and ``value`` holds d numbers: the k entries, and 0 elsewhere.
    ``TopK(1.0)`` decodes to the same bits as `Plain`, and its clients keep no residual.

    Args:
        share: the part of the entries to send, above 0 and at most 1.
        error_feedback: whether clients keep a residual and add it to their next update.

    Source: [Stich 2018]; [Karimireddy 2019].

    Example: clients send one entry of three. The second round adds the residual of the
    first:

    >>> channel = TopK(1 / 3)
    >>> update = torch.tensor([[3.0, -2.0, 1.0]])
    >>> first = channel.encode(update, {"residual": torch.zeros(1, 3)})
    >>> first.payload
    {'index': tensor([[0]], dtype=torch.int32), 'value': tensor([[3.]])}
    >>> first.kept
    {'residual': tensor([[ 0., -2.,  1.]])}
    >>> second = channel.encode(update, first.kept)
    >>> channel.decode(second.payload, 3)
    tensor([[ 0., -4.,  0.]])
    """

    share: float
    error_feedback: bool = True

    traits = ChannelTraits()

    def __post_init__(self) -> None:
        require(
            0 < self.share <= 1,
            f"TopK: share must be in (0, 1], not {self.share}",
            where="share",
        )

    @property
    def keeps(self) -> tuple[str, ...]:
        """Name the residual, if clients can have one."""
        if self.error_feedback and self.share < 1:
            return (RESIDUAL,)
        return ()

    def fit(self, setting: Setting) -> None:
        """Accept every setting."""

    def encode(
        self, deltas: Stack, kept: Mapping[str, Stack], streams: U64 | None = None
    ) -> Encoded:
        """Return the largest entries of update plus residual, and the new residual."""
        if self.share == 1:
            return Encoded({"value": deltas})
        total = deltas
        if self.error_feedback:
            total = deltas + kept[RESIDUAL]
        index = largest(total, self.count(total.shape[1]))
        value = total.gather(1, index)
        payload = {"index": index.int(), "value": value}
        sparse_bytes = index.shape[1] * (4 + value.element_size())
        if sparse_bytes >= total.shape[1] * value.element_size():
            payload = {"value": torch.zeros_like(total).scatter_(1, index, value)}
        if not self.error_feedback:
            return Encoded(payload)
        return Encoded(payload, {RESIDUAL: total.scatter_(1, index, 0.0)})

    def decode(self, payload: Mapping[str, torch.Tensor], size: int) -> Stack:
        """Return the entries that the clients sent, and 0 elsewhere."""
        value = payload["value"]
        if "index" not in payload:
            return value
        return value.new_zeros(len(value), size).scatter_(
            1, payload["index"].long(), value
        )

    def count(self, size: int) -> int:
        """Return k for updates with this many entries.

        >>> TopK(0.07).count(100), TopK(0.001).count(10)
        (7, 1)
        """
        entries = round(self.share * size, 6)  # without rounding, 0.07 * 100 is above 7
        return min(size, max(1, ceil(entries)))


def largest(rows: Stack, count: int) -> torch.Tensor:
    """Return the positions of each row's largest magnitudes; the first of ties wins.

    `torch.topk` does not specify which of several equal entries it takes.

    >>> largest(torch.tensor([[1.0, -3.0, 3.0, 3.0], [0.0, 0.0, 0.0, -1.0]]), 2)
    tensor([[1, 2],
            [0, 3]])
    """
    positions = np.empty((len(rows), count), dtype=np.int64)
    for row, entries in zip(positions, rows, strict=True):
        row[:] = _largest_of_row(entries, count)
    return torch.from_numpy(positions).to(rows.device)


def _largest_of_row(entries: Vector, count: int) -> Ints:
    """Do the work of `largest` for one row; NaN counts as the largest value."""
    # The bits of non-negative floats, read as integers, have the same order as the
    # floats.
    magnitudes = entries.abs().view(INTEGERS[entries.element_size()]).cpu().numpy()
    least = np.partition(magnitudes, len(magnitudes) - count)[len(magnitudes) - count]
    chosen = np.flatnonzero(magnitudes >= least)
    if len(chosen) > count:
        equal = np.flatnonzero(magnitudes[chosen] == least)
        chosen = np.delete(chosen, equal[count - len(chosen) :])
    return np.asarray(chosen, dtype=np.int64)
