"""Threads and workers: one thread per operation, blocks of rows for workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from poise.core.vectors import Stack

MapWorkers = Callable[[Callable[[Any], Any], Iterable[Any]], list[Any]]
"""Maps a function over items, in their order."""

BLOCK = 2**22
"""Bytes of a stack that a worker takes at once; less is not worth the handover."""

WARM = 2**20
"""Bytes that stay in a core's cache from one operation to the next."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread per PyTorch operation inside the block.

    Several threads would split a sum by their number, and its rounding would depend on
    it: the same run would end in other bits on another machine, or under load. Workers
    run in parallel, operations do not.
    """
    import torch  # not at the top: readers of ledgers do not need it

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def in_turn(function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    """Map one item after the other, in this thread."""
    return [function(item) for item in items]


def row_blocks(stack: Stack, size: int = BLOCK) -> list[Stack]:
    """Cut a stack into blocks of about ``size`` bytes; depends on its shape only.

    >>> import torch
    >>> [len(rows) for rows in row_blocks(torch.zeros(5, 2**19))]
    [2, 2, 1]
    """
    step = rows_per_block(stack, size)
    return [stack[k : k + step] for k in range(0, max(1, len(stack)), step)]


def rows_per_block(stack: Stack, size: int = BLOCK) -> int:
    """Return how many rows of a stack take about ``size`` bytes; at least one."""
    return max(1, size // max(1, stack.shape[1] * stack.element_size()))
