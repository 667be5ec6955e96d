"""How many threads PyTorch uses inside one operation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread per operation for the time of the block.

    A sum that several threads share is split by their number, and its rounding with it: the same run would
    end in other bits on another machine, or under load. Workers are what runs in parallel, not operations.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
