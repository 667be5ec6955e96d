"""How many threads PyTorch uses inside one operation, and what is cut so that several workers share it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from poise.core.vectors import Stack

Spread = Callable[[Callable[[Any], Any], Iterable[Any]], list[Any]]
"""Maps a function over items, in their order."""

BLOCK = 2**24  # bytes of a stack that a worker takes at once: handing over a smaller piece costs what it saves


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread per operation for the time of the block.

    A sum that several threads share is split by their number, and its rounding with it: the same run would
    end in other bits on another machine, or under load. Workers are what runs in parallel, not operations.
    """
    import torch  # ledgers are read without it

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def in_turn(function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    """One after the other, in this thread."""
    return [function(item) for item in items]


def row_blocks(stack: Stack) -> list[slice]:
    """The rows of a stack in pieces of about `BLOCK` bytes: a function of its shape, whoever takes them.

    >>> import torch
    >>> row_blocks(torch.zeros(5, 2**21))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 6, None)]
    """
    size = max(1, BLOCK // max(1, stack.shape[1] * stack.element_size()))
    return [slice(k, k + size) for k in range(0, max(1, len(stack)), size)]
