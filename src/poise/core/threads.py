"""How many threads PyTorch uses inside one operation, and what is cut so that several workers share
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from poise.core.vectors import Stack

MapWorkers = Callable[[Callable[[Any], Any], Iterable[Any]], list[Any]]
"""Maps a function over items, in their order."""

BLOCK = (
    2**22
)  # bytes of a stack that a worker takes at once: handing over a smaller piece costs what it saves
WARM = 2**20  # bytes that one operation leaves in a core's cache for the next


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread per operation for the time of the block.

    A sum that several threads share is split by their number, and its rounding with it: the same
    run would end in other bits on another machine, or under load. Workers are what runs in
    parallel, not operations.
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


def row_blocks(stack: Stack, size: int = BLOCK) -> list[Stack]:
    """The rows of a stack in pieces of about ``size`` bytes: a matter of its shape, whoever takes
    them.

    >>> import torch
    >>> [len(rows) for rows in row_blocks(torch.zeros(5, 2**19))]
    [2, 2, 1]
    """
    few = rows_per_block(stack, size)
    return [stack[k : k + few] for k in range(0, max(1, len(stack)), few)]


def rows_per_block(stack: Stack, size: int = BLOCK) -> int:
    """How many rows of a stack are about ``size`` bytes; at least one."""
    return max(1, size // max(1, stack.shape[1] * stack.element_size()))
