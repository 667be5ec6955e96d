"""Data sets of the library `datasets` (Hugging Face) as tables."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from poise.core.errors import DataError, InvalidOption, suggest
from poise.data.own.pictures import same_size
from poise.data.own.table import Table, whole

if TYPE_CHECKING:
    import datasets


def is_hugging_face(data: object) -> bool:
    """Return whether data come from `datasets`, without importing it."""
    module = sys.modules.get("datasets")
    if module is None:
        return False
    kinds = (module.Dataset, module.DatasetDict, module.IterableDataset)
    return isinstance(data, kinds)


def hugging_face_table(data: datasets.Dataset) -> Table:
    """Return the table of a data set; images become (channels, height, width)."""
    module = sys.modules["datasets"]
    if isinstance(data, module.DatasetDict):
        splits = list(data)
        raise InvalidOption(
            "the data set has several splits",
            f"choose one: data[{splits[0]!r}]; {suggest('', splits)}",
            where=("source",),
        )
    if isinstance(data, module.IterableDataset):
        raise InvalidOption(
            "the data set is a stream without a length",
            "load it with streaming=False",
            where=("source",),
        )

    def column(name: str) -> NDArray[Any]:
        if isinstance(data.features[name], module.Image):
            return same_size(data.with_format(None)[name], f"column {name!r}")
        return _values(name, data)

    return whole("the data set", list(data.features), column)


def _values(name: str, data: datasets.Dataset) -> NDArray[Any]:
    values = data.with_format("numpy")[name][:]
    array = np.asarray(values)
    if array.dtype.kind in "biuf":
        return array
    if array.dtype.kind == "O" and array.ndim == 1 and len(array):
        if isinstance(array[0], np.ndarray):
            raise DataError(
                f"the data set, column {name!r}: its arrays have different shapes",
                "bring them to one shape, or leave the column out: features=[…]",
            )
        return array
    return array.astype(object)
