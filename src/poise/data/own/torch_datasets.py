"""Map-style data sets of PyTorch as arrays."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from poise.core.errors import DataError, InvalidOption
from poise.data.blocks import room
from poise.data.own.encoding import Read
from poise.data.own.pictures import is_grey, pixels
from poise.data.sources.inputs import Collate


def read_torch(
    data: Sequence[Dataset[Any]], collate: str | Collate | None = None
) -> list[Read]:
    """Return the arrays of data sets whose items are pairs (x, y); each is read once.

    With ``collate`` the items may have different lengths: they stay lists.
    """
    return [_read(dataset, ragged=collate is not None) for dataset in data]


def _read(data: Dataset[Any], ragged: bool) -> Read:
    if isinstance(data, TensorDataset) and len(data.tensors) == 2:
        x, y = (tensor.detach().cpu().numpy() for tensor in data.tensors)
        return Read(x, y)
    if isinstance(data, IterableDataset):
        raise InvalidOption(
            "the data set is a stream without a length",
            "read it into arrays (x, y)",
            where=("source",),
        )
    count = len(data)  # type: ignore[arg-type]
    if not count:
        raise DataError("the data set has no items")
    if ragged:
        pairs = [_pair(data, row) for row in range(count)]
        return Read([x for x, _ in pairs], [y for _, y in pairs])
    first = _pair(data, 0)
    x = room((count, *first[0].shape), first[0].dtype)
    y = np.empty((count, *first[1].shape), first[1].dtype)
    for row in range(count):
        features, label = _pair(data, row)
        if features.shape != first[0].shape or label.shape != first[1].shape:
            raise DataError(
                f"the data set: item {row} has shape {features.shape}, item 0 "
                f"{first[0].shape}",
                "bring all items to one shape, or add collate= for texts of different "
                "lengths",
            )
        x[row] = features
        y[row] = label
    return Read(x, y)


def _pair(data: Dataset[Any], row: int) -> tuple[NDArray[Any], NDArray[Any]]:
    try:
        item = data[row]
    except Exception as error:
        raise DataError(
            f"the data set failed at item {row}: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise DataError(
            f"the data set: item {row} is no pair (x, y) but {type(item).__name__}",
            "return x and y from __getitem__",
        )
    return _array(item[0]), _array(item[1])


def _array(value: Any) -> NDArray[Any]:
    pillow = sys.modules.get("PIL.Image")
    if pillow is not None and isinstance(value, pillow.Image):
        return pixels(value, colour=not is_grey(value))
    return np.asarray(value)
