"""Arrays that may be larger than memory: read, check and copy them in blocks."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray

from poise.core.errors import DataError
from poise.data.files import folders

LARGE = 512 * 2**20
"""Arrays of more bytes that poise itself makes are kept in a file, memory-mapped."""

_BLOCK = 16 * 2**20  # bytes


def is_mapped(array: object) -> bool:
    """Return whether an array is a view of a memory-mapped file.

    >>> is_mapped(np.zeros(3))
    False
    """
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap):
            return True
        array = array.base
    return False


def blocks_of(array: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    """Return the first row and the rows of consecutive blocks of an array.

    >>> [(first, len(rows)) for first, rows in blocks_of(np.zeros((5, 2**20)))]
    [(0, 2), (2, 2), (4, 1)]
    """
    row = max(array.nbytes // max(len(array), 1), 1)
    length = max(_BLOCK // row, 1)
    for first in range(0, len(array), length):
        yield first, array[first : first + length]


def row_not_finite(array: NDArray[Any]) -> int | None:
    """Return the first row with NaN or infinity, or None.

    >>> row_not_finite(np.array([[0.0, 1.0], [np.inf, 0.0]]))
    1
    """
    if array.dtype.kind != "f":
        return None
    for first, rows in blocks_of(array):
        infinite = ~np.isfinite(rows.reshape(len(rows), -1)).all(axis=1)
        if infinite.any():
            return first + int(np.argmax(infinite))
    return None


def room(shape: Sequence[int], dtype: DTypeLike) -> NDArray[Any]:
    """Return an array to fill: in memory, or mapped to a temporary file if large.

    The file has no name and disappears with the array.

    >>> room((2, 3), np.float32).shape
    (2, 3)
    """
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    if size <= LARGE:
        return np.empty(tuple(shape), dtype)
    folder = folders()[-1]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            return np.memmap(file, np.dtype(dtype), "w+", shape=tuple(shape))
    except OSError as error:
        raise DataError(
            f"{folder} has no room for {size / 2**30:.1f} GiB: {error.strerror}",
            "set XDG_CACHE_HOME to a folder with more space",
        ) from error


def joined(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return the rows of several arrays one after the other; one array stays as it is.

    >>> joined([np.zeros((1, 2)), np.ones((2, 2))]).shape
    (3, 2)
    """
    if len(parts) == 1:
        return parts[0]
    length = sum(len(part) for part in parts)
    dtype = np.result_type(*parts)
    if dtype.hasobject or sum(part.nbytes for part in parts) <= LARGE:
        return np.concatenate(parts)
    whole = room((length, *parts[0].shape[1:]), dtype)
    start = 0
    for part in parts:
        for first, rows in blocks_of(part):
            whole[start + first : start + first + len(rows)] = rows
        start += len(part)
    return whole


def tensor_of(array: NDArray[Any], dtype: DTypeLike) -> torch.Tensor:
    """Return the array as a tensor of this type; a memory-mapped one stays on disk.

    An array in memory is copied. A mapped array of another type is converted in blocks.

    >>> tensor_of(np.zeros((2, 3)), np.float32).dtype
    torch.float32
    """
    if not is_mapped(array):
        return torch.from_numpy(np.array(array, dtype=dtype, order="C"))
    stored = array
    if array.dtype != np.dtype(dtype) or not array.flags.c_contiguous:
        stored = room(array.shape, dtype)
        for first, rows in blocks_of(array):
            stored[first : first + len(rows)] = rows
    with warnings.catch_warnings():
        # nothing writes to a pool
        warnings.filterwarnings("ignore", message=".*not writable")
        return torch.from_numpy(np.asarray(stored))
