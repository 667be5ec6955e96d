"""Stacks that are too large for memory: a temporary file, mapped into memory.

A stack above `LIMIT` bytes lives in an unnamed file in the temporary folder (choose it
with ``TMPDIR``). It is a tensor like any other, with the same numbers. Who has read or
written a part of it calls `release`, which takes these pages out of the process; the
file keeps them. The limit is a rule about shapes and never looks at free memory.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator, Sequence
from math import prod
from weakref import WeakValueDictionary

import numpy as np
import torch

from poise.core.errors import PoiseError
from poise.core.vectors import Stack

LIMIT = 2**30
"""Bytes of a stack from which on it lives in a file."""

PART = 2**26
"""Bytes that are read from a stack in a file before their pages are released."""

MAPPED = hasattr(mmap, "MADV_DONTNEED") and hasattr(os, "posix_fallocate")
"""Whether the system can reserve a file and release its pages: Linux, not macOS."""

_maps: WeakValueDictionary[int, mmap.mmap] = WeakValueDictionary()  # by address


def spills(shape: Sequence[int], like: torch.Tensor) -> bool:
    """Return whether a stack of this shape lives in a file; never on other devices."""
    if like.device.type != "cpu" or not MAPPED:
        return False
    return prod(shape) * like.element_size() > LIMIT


def empty(shape: Sequence[int], like: torch.Tensor) -> Stack:
    """Return an uninitialised stack with the number type and device of ``like``."""
    if not spills(shape, like):
        return like.new_empty(tuple(shape))
    size = prod(shape) * like.element_size()
    pages = _pages(size)
    flat = torch.from_numpy(np.frombuffer(pages, dtype=np.uint8))
    stack = flat.view(like.dtype).view(*shape)
    _maps[stack.data_ptr()] = pages  # the tensor keeps it open
    return stack


def _pages(size: int) -> mmap.mmap:
    """Map a new unnamed file, with all its room on the disk reserved."""
    folder = "the temporary folder"
    try:
        folder = tempfile.gettempdir()
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, size)
            return mmap.mmap(file.fileno(), size)
    except OSError as error:
        raise PoiseError(
            f"{folder}: no room for the {size / 1e9:.1f} GB of updates of one round "
            f"({error.strerror})",
            "free space, set TMPDIR to a folder with more, or let fewer clients work "
            "per round",
        ) from error


def in_file(values: torch.Tensor) -> bool:
    """Return whether a tensor is a part of a stack in a file."""
    return _map_of(values) is not None


def release(values: torch.Tensor) -> None:
    """Take the pages of a tensor out of this process, if they are in a file."""
    found = _map_of(values)
    if found is None or not values.numel():
        return
    pages, offset = found
    reach = sum((n - 1) * s for n, s in zip(values.shape, values.stride(), strict=True))
    start = offset - offset % mmap.PAGESIZE
    stop = offset + (reach + 1) * values.element_size()
    pages.madvise(mmap.MADV_DONTNEED, start, min(stop, len(pages)) - start)


def _map_of(values: torch.Tensor) -> tuple[mmap.mmap, int] | None:
    """Return the file that holds a tensor, and the place of its first byte there."""
    if not _maps or values.device.type != "cpu":
        return None
    address = values.data_ptr()
    for reference in _maps.valuerefs():  # a list: other threads may add maps
        pages = reference()
        if pages is not None and 0 <= address - reference.key < len(pages):
            return pages, address - reference.key
    return None


def column_blocks(stack: Stack) -> Iterator[slice]:
    """Cut the columns of a large stack into blocks, and release what was read.

    A stack in memory is one block.
    """
    columns = stack.shape[1]
    if not in_file(stack):
        yield slice(0, columns)
        return
    width = max(1, PART // max(1, len(stack) * stack.element_size()))
    for start in range(0, columns, width):
        yield slice(start, start + width)
        release(stack)


def select(stack: Stack, rows: torch.Tensor) -> Stack:
    """Return a copy of some rows; like any stack it lives in a file where it is large."""
    shape = (len(rows), *stack.shape[1:])
    if not spills(shape, stack):
        return stack[rows]
    return filled(shape, stack, [stack[row] for row in rows.tolist()])


def copied(stack: Stack) -> Stack:
    """Return a copy of a stack."""
    if not spills(stack.shape, stack):
        return stack.clone()
    return filled(stack.shape, stack, list(stack))


def joined(stacks: Sequence[Stack]) -> Stack:
    """Return the rows of several stacks, one stack after the other."""
    shape = (sum(len(stack) for stack in stacks), *stacks[0].shape[1:])
    if not spills(shape, stacks[0]):
        return torch.cat(list(stacks))
    return filled(shape, stacks[0], [row for stack in stacks for row in stack])


def filled(shape: Sequence[int], like: torch.Tensor, rows: Sequence[Stack]) -> Stack:
    """Return a stack of these rows."""
    stack = empty(shape, like)
    for place, row in zip(stack, rows, strict=True):
        place.copy_(row)
        release(place)
        release(row)
    return stack
