"""Data frames of pandas and polars as tables."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from poise.core.errors import DataError
from poise.data.own.table import Table, whole

if TYPE_CHECKING:
    import pandas
    import polars

    Frame: TypeAlias = pandas.DataFrame | polars.DataFrame


def is_frame(data: object) -> bool:
    """Return whether data are a data frame, without importing pandas or polars."""
    return _is("pandas", data) or _is("polars", data)


def _is(library: str, data: object) -> bool:
    module = sys.modules.get(library)
    return module is not None and isinstance(data, module.DataFrame)


def frame_table(frame: Frame) -> Table:
    """Return the table of a data frame.

    Gaps become None. The index of a pandas frame is no column.
    """
    names = [str(name) for name in frame.columns]
    labels = dict(zip(names, frame.columns, strict=True))

    def column(name: str) -> NDArray[Any]:
        return _values(name, frame[labels[name]])

    return whole("the data frame", names, column)


def _values(name: str, column: pandas.Series | polars.Series) -> NDArray[Any]:
    """Return a column as numbers, or as texts and None."""
    values = np.asarray(column.to_numpy())
    if _is("pandas", column.to_frame()):
        gaps = np.asarray(column.isna())
    else:
        gaps = column.is_null().to_numpy()
    if values.dtype.kind in "biu" or (values.dtype.kind == "f" and not gaps.any()):
        return values
    if values.dtype.kind not in "fOUT":
        raise DataError(
            f"the data frame, column {name!r}: {column.dtype} is not a number",
            "turn it into numbers or texts, or leave it out: features=[…]",
        )
    given = values.astype(object)
    given[gaps] = None
    return given
