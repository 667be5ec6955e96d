"""Parquet files as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from poise.core.errors import DataError, InvalidOption
from poise.data.own.table import Block, Table, is_large

if TYPE_CHECKING:
    import pyarrow


def parquet_table(file: Path) -> Table:
    """Return the table of a Parquet file; errors name the row."""
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise InvalidOption(
            f"{file}: parquet files need pyarrow", "pip install 'poise[parquet]'"
        ) from error
    try:
        names = tuple(parquet.ParquetFile(file).schema_arrow.names)
    except ArrowException as error:
        raise DataError(f"{file} cannot be read as data: {error}") from error

    def read(wanted: Sequence[str]) -> Iterator[Block]:
        return _blocks(file, wanted)

    return Table(str(file), names, read, large=is_large(file))


def _blocks(file: Path, wanted: Sequence[str]) -> Iterator[Block]:
    from pyarrow import ArrowException, parquet

    first = 0
    try:
        for batch in parquet.ParquetFile(file).iter_batches(columns=list(wanted)):
            columns = {
                name: arrow_values(f"{file}, column {name!r}", column)
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
            }
            yield Block(columns, first)
            first += batch.num_rows
    except ArrowException as error:
        raise DataError(f"{file} cannot be read as data: {error}") from error


def arrow_values(
    place: str, column: pyarrow.Array | pyarrow.ChunkedArray
) -> NDArray[Any]:
    """Return an Arrow column as an array; a column with gaps has None or NaN there."""
    from pyarrow import types

    kind = column.type
    if types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if types.is_string(kind) or types.is_large_string(kind):
        return np.array(column.to_pylist(), dtype=object)
    is_number = types.is_integer(kind) or types.is_floating(kind)
    if not is_number and not types.is_boolean(kind):
        raise DataError(f"{place}: {kind} is not a number")
    if column.null_count:
        return np.array(column.to_pylist(), dtype=object)
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values
