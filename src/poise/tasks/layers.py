"""`Dropout` with masks from the client's own random stream."""

from __future__ import annotations

import threading

import torch
from torch import nn

_current = threading.local()


def use_generator(generator: torch.Generator | None) -> None:
    """Set the stream that `Dropout` draws from in this thread."""
    _current.generator = generator


class Dropout(nn.Module):
    """Dropout with masks from the client's own stream, independent of other clients.

    PyTorch's own layer draws from one generator of the process, so a client's masks
    would depend on the clients that worked before it.

    Args:
        p: probability that an entry is set to zero.
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Drop entries while training; return the input unchanged otherwise."""
        if not self.training or self.p == 0.0:
            return x
        keep = torch.empty_like(x, memory_format=torch.contiguous_format)
        keep.bernoulli_(1 - self.p, generator=getattr(_current, "generator", None))
        return x * keep.div_(1 - self.p)
