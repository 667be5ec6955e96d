"""Clients send the largest entries of their updates."""

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
BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # by the bytes of a number


@part("channel", "top-k")
class TopK:
    """Each client sends the ``k = ceil(share d)`` entries of largest magnitude, of d entries.

    With error feedback a client adds to its update what it did not send before, and keeps what it
    does not send now: ``sent + residual = update + residual before``, exactly. Of entries of equal
    magnitude the first ones are sent.

    Encoding: ``index``, k positions in ascending order (int32), and ``value``, k numbers in the
    precision of the model. That makes ``k (4 + b)`` bytes per update with b bytes per number. Where
    `Plain` would need no more, ``d b`` bytes, there is no ``index``, and ``value`` holds d numbers:
    the k entries, and 0 elsewhere. ``TopK(1.0)`` decodes to the same bits as `Plain`, and its
    clients keep nothing.

    Args:
        share: the part of the entries that is sent, above 0 and at most 1.
        error_feedback: whether clients keep what they did not send, and add it to the next update.

    Source: Stich, Cordonnier & Jaggi 2018, "Sparsified SGD with Memory"; Karimireddy et al. 2019,
    "Error Feedback Fixes SignSGD and other Gradient Compression Schemes".

    One entry of three is sent. The second round starts from what the first one left:

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
            0 < self.share <= 1, f"TopK: share must be in (0, 1], not {self.share}", where="share"
        )

    @property
    def keeps(self) -> tuple[str, ...]:
        """The residual, where there may be one."""
        return (RESIDUAL,) if self.error_feedback and self.share < 1 else ()

    def fit(self, setting: Setting) -> None:
        """Fits everywhere."""

    def encode(
        self, deltas: Stack, kept: Mapping[str, Stack], streams: U64 | None = None
    ) -> Encoded:
        """The largest entries of update plus residual, and the rest."""
        if self.share == 1:
            return Encoded({"value": deltas})
        wanted = deltas + kept[RESIDUAL] if self.error_feedback else deltas
        index = largest(wanted, self.count(wanted.shape[1]))
        value = wanted.gather(1, index)
        payload = {"index": index.int(), "value": value}
        if index.shape[1] * (4 + value.element_size()) >= wanted.shape[1] * value.element_size():
            payload = {"value": torch.zeros_like(wanted).scatter_(1, index, value)}
        if not self.error_feedback:
            return Encoded(payload)
        return Encoded(payload, {RESIDUAL: wanted.scatter_(1, index, 0.0)})

    def decode(self, payload: Mapping[str, torch.Tensor], size: int) -> Stack:
        """The entries that were sent, and 0 elsewhere."""
        value = payload["value"]
        if "index" not in payload:
            return value
        return value.new_zeros(len(value), size).scatter_(1, payload["index"].long(), value)

    def count(self, size: int) -> int:
        """k, of updates with this many entries.

        >>> TopK(0.07).count(100), TopK(0.001).count(10)
        (7, 1)
        """
        share = round(self.share * size, 6)  # 0.07 * 100 is above 7
        return min(size, max(1, ceil(share)))


def largest(rows: Stack, count: int) -> torch.Tensor:
    """The positions of the largest magnitudes of each row, ascending; of equal ones the first.

    `torch.topk` leaves open which of equal entries it takes.

    >>> largest(torch.tensor([[1.0, -3.0, 3.0, 3.0], [0.0, 0.0, 0.0, -1.0]]), 2)
    tensor([[1, 2],
            [0, 3]])
    """
    found = np.empty((len(rows), count), dtype=np.int64)
    for row, entries in zip(found, rows, strict=True):
        row[:] = _largest(entries, count)
    return torch.from_numpy(found).to(rows.device)


def _largest(entries: Vector, count: int) -> Ints:
    """As `largest`, of one row. NaN counts as larger than every number: the server must see it."""
    sizes = entries.abs().view(BITS[entries.element_size()]).cpu().numpy()  # in the same order
    least = np.partition(sizes, len(sizes) - count)[len(sizes) - count]
    chosen = np.flatnonzero(sizes >= least)
    if len(chosen) > count:
        equal = np.flatnonzero(sizes[chosen] == least)
        chosen = np.delete(chosen, equal[count - len(chosen) :])
    return np.asarray(chosen, dtype=np.int64)
