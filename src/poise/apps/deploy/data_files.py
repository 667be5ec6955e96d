"""Features and labels of a node, from a file or from the operator's function."""

from __future__ import annotations

import csv
import importlib
import importlib.util
import math
import sys
import traceback
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poise.core.errors import DataError, InvalidOption, require

ArrayPair = tuple[NDArray[Any], NDArray[Any]]  # features and labels

# cells that stand for a missing value
MISSING = frozenset({"", "?", "na", "n/a", "nan", "null", "none"})
FILL = (
    "fill or remove these rows, or prepare the data in a function: callable = "
    "'module:function'"
)


def read_arrays(file: Path, label: str, classes: int) -> ArrayPair:
    """Features and labels from a file.

    Labels are integers if there are ``classes``, floats otherwise.
    """
    readers = {".csv": _csv, ".npz": _npz, ".parquet": _parquet}
    if file.suffix not in readers:
        raise InvalidOption(
            f"{file}: unknown file type {file.suffix!r}", f"known: {', '.join(readers)}"
        )
    try:
        x, y = readers[file.suffix](file, label)
    except (
        OSError,
        ValueError,
        EOFError,
        zipfile.BadZipFile,
        zlib.error,
        csv.Error,
    ) as error:
        raise DataError(f"{file} cannot be read as data: {error}") from error
    return _check_arrays(str(file), x, y=y, classes=classes)


def call_function(
    name: str, options: Mapping[str, Any], folder: Path, classes: int
) -> ArrayPair:
    """Features and labels from ``module:function``, called with ``options``.

    Modules in ``folder`` come first. If the function fails, a `DataError` names file
    and line.
    """
    module_name, _, function_name = name.partition(":")
    is_valid = all(
        part.isidentifier() for part in [*module_name.split("."), function_name]
    )
    require(
        is_valid,
        f"[data] callable = {name!r} is not 'module:function'",
        "for example 'patients:load'",
    )
    try:
        with _importable(folder):
            function = getattr(_load_module(module_name, folder), function_name)
            result = function(**options)
    except (Exception, SystemExit) as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        line = f"{Path(frame.filename).name}, line {frame.lineno}"
        raise DataError(
            f"callable {name} failed ({line}): {type(error).__name__}: {error}"
        ) from error
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise DataError(
            f"callable {name} returned {type(result).__name__}",
            "return two arrays: (x, y)",
        )
    try:
        x = np.asarray(result[0])
        y = np.asarray(result[1])
    except ValueError as error:
        raise DataError(
            f"callable {name} returned rows of different lengths: {error}"
        ) from error
    return _check_arrays(f"callable {name}", x, y=y, classes=classes)


def _check_arrays(
    name: str, x: NDArray[Any], y: NDArray[Any], classes: int
) -> ArrayPair:
    """The arrays in the types that models need; errors name the row."""
    if x.ndim < 2 or y.ndim != 1 or len(x) != len(y) or x.size == 0:
        raise DataError(
            f"{name}: x has shape {list(x.shape)} and y {list(y.shape)}",
            "x must be (n, …) and y (n,)",
        )
    for array_name, values in (("x", x), ("y", y)):
        if values.dtype.kind not in "biuf":
            raise DataError(f"{name}: {array_name} must be numbers, not {values.dtype}")
        bad = ~np.isfinite(values.reshape(len(values), -1)).all(axis=1)
        if bad.any():
            row = int(np.argmax(bad))
            raise DataError(f"{name}: {array_name} is not finite in row {row}", FILL)
    if not classes:
        return x, y.astype(np.float64)
    wrong = (y != np.floor(y)) | (y < 0) | (y >= classes)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataError(
            f"{name}: the label in row {row} is {y[row]:g}",
            f"with classes = {classes}: 0 to {classes - 1}",
        )
    return x, y.astype(np.int64)


def _csv(file: Path, label: str) -> ArrayPair:
    """A table with a header, read cell by cell; errors name line and column."""
    with file.open(encoding="utf-8-sig", newline="") as stream:
        lines = csv.reader(stream, strict=True)
        names = [cell.strip() for cell in next(lines, [])]
        features = _feature_columns(file, names, label)
        rows = [
            _parse_row(cells, names, file=file, line=lines.line_num)
            for cells in lines
            if cells
        ]
    if not rows:
        raise DataError(f"{file} has a header but no rows")
    table = np.array(rows, dtype=np.float64)
    return table[:, features], table[:, names.index(label)]


def _feature_columns(file: Path, names: Sequence[str], label: str) -> list[int]:
    """The indices of all columns except the label's."""
    if label not in names:
        raise DataError(
            f"{file} has no column {label!r}",
            f"columns: {', '.join(names)}; label = … names the column of the labels",
        )
    if "" in names:
        raise DataError(f"{file} has a column without a name")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(
            f"{file}: {names.count(twice[0])} columns have the name {twice[0]!r}"
        )
    if len(names) < 2:
        raise DataError(f"{file} has no columns except {label!r}")
    return [k for k, name in enumerate(names) if name != label]


def _parse_row(
    cells: Sequence[str], names: Sequence[str], file: Path, line: int
) -> list[float]:
    """The numbers of one line."""
    if len(cells) != len(names):
        raise DataError(
            f"{file}, line {line}: {len(cells)} values for {len(names)} columns"
        )
    numbers = []
    for name, cell in zip(names, cells, strict=True):
        text = cell.strip()
        if text.lower() in MISSING:
            raise DataError(f"{file}, line {line}, column {name!r}: no value", FILL)
        try:
            value = float(text.replace("_", "?"))  # Python accepts 1_000 as a number
        except ValueError:
            if len(text) > 40:
                text = f"{text[:37]}..."
            raise DataError(
                f"{file}, line {line}, column {name!r}: {text!r} is not a number"
            ) from None
        if not math.isfinite(value):
            raise DataError(
                f"{file}, line {line}, column {name!r}: {text} is not finite", FILL
            )
        numbers.append(value)
    return numbers


def _npz(file: Path, label: str) -> ArrayPair:
    with (
        file.open("rb") as stream,
        np.lib.npyio.NpzFile(stream, allow_pickle=False) as archive,
    ):
        absent = sorted({"x", "y"} - set(archive.files))
        if absent:
            raise DataError(
                f"{file} has no array {absent[0]!r}",
                f"arrays: {', '.join(archive.files)}",
            )
        return archive["x"], archive["y"]


def _parquet(file: Path, label: str) -> ArrayPair:
    """A table of numbers, column by column."""
    try:
        from pyarrow import ArrowException, parquet, types
    except ImportError as error:
        raise InvalidOption(
            f"{file}: parquet files need pyarrow", "pip install 'poise[parquet]'"
        ) from error
    try:
        table = parquet.ParquetFile(file).read()
    except ArrowException as error:
        raise DataError(f"{file} cannot be read as data: {error}") from error
    names = list(table.column_names)
    features = _feature_columns(file, names, label)
    columns = []
    for name, column in zip(names, table.columns, strict=True):
        is_number = types.is_integer(column.type) or types.is_floating(column.type)
        if not is_number and not types.is_boolean(column.type):
            raise DataError(f"{file}, column {name!r}: {column.type} is not a number")
        if column.null_count:
            row = int(np.argmax(column.is_null().to_numpy()))
            raise DataError(f"{file}, row {row}, column {name!r}: no value", FILL)
        columns.append(column.to_numpy().astype(np.float64))
    if not table.num_rows:
        raise DataError(f"{file} has columns but no rows")
    values = np.stack(columns, axis=1)
    return values[:, features], values[:, names.index(label)]


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Let modules import others from ``folder``; installed modules come first."""
    sys.path.append(str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _load_module(name: str, folder: Path) -> ModuleType:
    """The module of this name in ``folder``, loaded afresh, else an installed one."""
    path = folder.joinpath(*name.split("."))
    candidates = (path.with_suffix(".py"), path / "__init__.py")
    file = next((candidate for candidate in candidates if candidate.is_file()), None)
    if file is None:
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
