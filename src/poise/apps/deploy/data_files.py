"""Features and labels from what a node's operator has: files, or a function of their own."""

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

Pair = tuple[NDArray[Any], NDArray[Any]]

ABSENT = frozenset(
    {"", "?", "na", "n/a", "nan", "null", "none"}
)  # how tables say that a value is missing
FILL = (
    "fill or leave out such rows, or prepare the data in a function: callable = 'module:function'"
)


def read_arrays(file: Path, label: str, classes: int) -> Pair:
    """Features and labels from a file; the labels are whole numbers where there are classes, else
    quantities.
    """
    readers = {".csv": _csv, ".npz": _npz, ".parquet": _parquet}
    if file.suffix not in readers:
        raise InvalidOption(
            f"{file}: unknown kind of file {file.suffix!r}", f"known: {', '.join(readers)}"
        )
    try:
        x, y = readers[file.suffix](file, label)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, csv.Error) as error:
        raise DataError(f"{file} cannot be read as data: {error}") from error
    return _checked(str(file), x, y, classes)


def call_function(name: str, options: Mapping[str, Any], folder: Path, classes: int) -> Pair:
    """Features and labels from ``module:function``, called with ``options``; modules in ``folder``
    come first.

    Whatever the function does wrong is a `DataError` that says where.
    """
    where, _, what = name.partition(":")
    whole = all(part.isidentifier() for part in [*where.split("."), what])
    require(
        whole, f"[data] callable = {name!r} is not 'module:function'", "for example 'patients:load'"
    )
    try:
        with _findable(folder):
            function = getattr(_module(where, folder), what)
            found = function(**options)
    except (Exception, SystemExit) as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(at.filename).name}, line {at.lineno}"
        raise DataError(
            f"callable {name} failed ({place}): {type(error).__name__}: {error}"
        ) from error
    pair = isinstance(found, tuple | list) and len(found) == 2
    if not pair:
        raise DataError(
            f"callable {name} returned {type(found).__name__}", "return two arrays: (x, y)"
        )
    try:
        x, y = np.asarray(found[0]), np.asarray(found[1])
    except ValueError as error:
        raise DataError(f"callable {name} returned rows of different lengths: {error}") from error
    return _checked(f"callable {name}", x, y, classes)


def _checked(name: str, x: NDArray[Any], y: NDArray[Any], classes: int) -> Pair:
    """The arrays as a model takes them; errors say in which row what is wrong."""
    if x.ndim < 2 or y.ndim != 1 or len(x) != len(y) or x.size == 0:
        raise DataError(
            f"{name}: x has shape {list(x.shape)} and y {list(y.shape)}",
            "x must be (n, …) and y (n,)",
        )
    for what, values in (("x", x), ("y", y)):
        if values.dtype.kind not in "biuf":
            raise DataError(f"{name}: {what} must be numbers, not {values.dtype}")
        bad = ~np.isfinite(values.reshape(len(values), -1)).all(axis=1)
        if bad.any():
            raise DataError(f"{name}: {what} is not finite in row {int(np.argmax(bad))}", FILL)
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


def _csv(file: Path, label: str) -> Pair:
    """A table with a header, read cell by cell: an error names line and column."""
    with file.open(encoding="utf-8-sig", newline="") as stream:
        lines = csv.reader(stream, strict=True)
        names = [cell.strip() for cell in next(lines, [])]
        own = _columns(file, names, label)
        rows = [_numbers(file, lines.line_num, names, cells) for cells in lines if cells]
    if not rows:
        raise DataError(f"{file} has a header and no rows")
    table = np.array(rows, dtype=np.float64)
    return table[:, own], table[:, names.index(label)]


def _columns(file: Path, names: Sequence[str], label: str) -> list[int]:
    """Where the features are: every column but the label's."""
    if label not in names:
        raise DataError(
            f"{file} has no column {label!r}", f"columns: {', '.join(names)}; label = … names it"
        )
    if "" in names:
        raise DataError(f"{file} has a column without a name")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"{file}: {names.count(twice[0])} columns have the name {twice[0]!r}")
    if len(names) < 2:
        raise DataError(f"{file} has no columns beside {label!r}")
    return [k for k, name in enumerate(names) if name != label]


def _numbers(file: Path, line: int, names: Sequence[str], cells: Sequence[str]) -> list[float]:
    if len(cells) != len(names):
        raise DataError(f"{file}, line {line}: {len(cells)} values for {len(names)} columns")
    found = []
    for name, cell in zip(names, cells, strict=True):
        text = cell.strip()
        if text.lower() in ABSENT:
            raise DataError(f"{file}, line {line}, column {name!r}: no value", FILL)
        try:
            value = float(text.replace("_", "?"))  # Python would take 1_000 for a number
        except ValueError:
            shown = text if len(text) <= 40 else f"{text[:37]}..."
            raise DataError(
                f"{file}, line {line}, column {name!r}: {shown!r} is not a number"
            ) from None
        if not math.isfinite(value):
            raise DataError(f"{file}, line {line}, column {name!r}: {text} is not finite", FILL)
        found.append(value)
    return found


def _npz(file: Path, label: str) -> Pair:
    with file.open("rb") as stream, np.lib.npyio.NpzFile(stream, allow_pickle=False) as found:
        absent = sorted({"x", "y"} - set(found.files))
        if absent:
            raise DataError(
                f"{file} has no array {absent[0]!r}", f"arrays: {', '.join(found.files)}"
            )
        return found["x"], found["y"]


def _parquet(file: Path, label: str) -> Pair:
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
    own = _columns(file, names, label)
    columns = []
    for name, column in zip(names, table.columns, strict=True):
        if not (
            types.is_integer(column.type)
            or types.is_floating(column.type)
            or types.is_boolean(column.type)
        ):
            raise DataError(f"{file}, column {name!r}: {column.type} is not a number")
        if column.null_count:
            row = int(np.argmax(column.is_null().to_numpy()))
            raise DataError(f"{file}, row {row}, column {name!r}: no value", FILL)
        columns.append(column.to_numpy().astype(np.float64))
    if not table.num_rows:
        raise DataError(f"{file} has columns and no rows")
    whole = np.stack(columns, axis=1)
    return whole[:, own], whole[:, names.index(label)]


@contextmanager
def _findable(folder: Path) -> Iterator[None]:
    """A module may import what lies beside it; last, so that nothing there stands in for what is
    installed.
    """
    sys.path.append(str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _module(name: str, folder: Path) -> ModuleType:
    """The module of this name beside ``node.toml``, loaded anew, or else an installed one."""
    place = folder.joinpath(*name.split("."))
    file = next((f for f in (place.with_suffix(".py"), place / "__init__.py") if f.is_file()), None)
    if file is None:
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
