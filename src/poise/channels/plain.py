"""`Plain`: clients send their updates uncompressed."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from poise.core.parts import part
from poise.core.protocols import Encoded
from poise.core.rng import U64
from poise.core.traits import ChannelTraits
from poise.core.types import Setting
from poise.core.vectors import Stack


@part("channel", "plain")
class Plain:
    """Send every update in full: d numbers, in the precision of the model.

    Encoding and decoding return the given tensor without a copy.

    >>> sent = Plain().encode(torch.tensor([[1.0, -2.0]]), {})
    >>> sent.payload
    {'update': tensor([[ 1., -2.]])}
    >>> Plain().decode(sent.payload, 2)
    tensor([[ 1., -2.]])
    """

    traits = ChannelTraits(identity=True)
    keeps = ()

    def fit(self, setting: Setting) -> None:
        """Accept every setting."""

    def encode(
        self, deltas: Stack, kept: Mapping[str, Stack], streams: U64 | None = None
    ) -> Encoded:
        """Return the updates themselves as the payload ``update``."""
        return Encoded({"update": deltas})

    def decode(self, payload: Mapping[str, torch.Tensor], size: int) -> Stack:
        """Return the updates of the payload."""
        return payload["update"]
