"""Features and labels of a node, from a file or from the operator's function."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poise.core.errors import DataError, InvalidOption, require
from poise.core.labels import IGNORED
from poise.core.trees import leaves
from poise.data.own.loading import read_members
from poise.data.sources.inputs import Features, feature_arrays
from poise.data.sources.targets import Classes, label_array

ArrayPair = tuple[Features, NDArray[Any]]  # features and labels

COLUMNS = ("features", "missing", "categories")
"""Options of `poise.federation` that describe the columns of a table."""

READ = (".csv", ".npz", ".parquet")
FILL = (
    "fill or remove these rows, or prepare the data in a function: callable = "
    "'module:function'"
)


def read_arrays(
    file: Path,
    label: str,
    classes: Classes,
    options: Mapping[str, Any] | None = None,
) -> ArrayPair:
    """Features and labels from a file, by the readers of `poise.federation`.

    Labels are integers if there are ``classes``, floats otherwise. Columns of texts
    need ``options["categories"]``: all nodes must encode them in the same way. An
    ``.npz`` may hold several inputs: ``x0``, ``x1``, … for a tuple, any other names for
    a dict.
    """
    if file.suffix not in READ:
        raise InvalidOption(
            f"{file}: unknown file type {file.suffix!r}", f"known: {', '.join(READ)}"
        )
    if not file.is_file():
        raise DataError(f"{file} cannot be read as data: no such file")
    columns = dict(options or {})
    if file.suffix != ".npz":
        columns |= {"label": label, "closed": True}
    (found,) = read_members([file], columns)
    return _check_arrays(str(file), found.x, y=found.y, classes=classes)


def call_function(
    name: str, options: Mapping[str, Any], folder: Path, classes: Classes
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
        y = label_array(result[1], "y")
        x = feature_arrays(result[0], len(y), "x")
    except (InvalidOption, TypeError) as error:
        raise DataError(
            f"callable {name} returned rows of different lengths: {error}"
        ) from error
    return _check_arrays(f"callable {name}", x, y=y, classes=classes)


def _check_arrays(
    name: str, x: Features, y: NDArray[Any], classes: Classes
) -> ArrayPair:
    """The arrays in the types that models need; errors name the row."""
    least = 2 if isinstance(x, np.ndarray) else 1
    for part in leaves(x):
        if part.ndim < least or y.ndim < 1 or len(part) != len(y) or part.size == 0:
            raise DataError(
                f"{name}: x has shape {list(part.shape)} and y {list(y.shape)}",
                "x must be (n, …) and y (n,) or (n, …)",
            )
    for array_name, values in (*(("x", part) for part in leaves(x)), ("y", y)):
        if array_name == "y" and not isinstance(classes, int):
            continue  # the federation checks the names
        if values.dtype.kind not in "biuf":
            raise DataError(f"{name}: {array_name} must be numbers, not {values.dtype}")
        bad = ~np.isfinite(values.reshape(len(values), -1)).all(axis=1)
        if bad.any():
            row = int(np.argmax(bad))
            raise DataError(f"{name}: {array_name} is not finite in row {row}", FILL)
    if not isinstance(classes, int):  # names: the federation numbers the texts
        return x, y
    if not classes:
        return x, y.astype(np.float64)
    wrong = (y != np.floor(y)) | (y < 0) | (y >= classes)
    if y.ndim > 1:
        wrong &= y != IGNORED
    if wrong.any():
        row = int(np.argmax(wrong.reshape(len(y), -1).any(axis=1)))
        raise DataError(
            f"{name}: the label in row {row} is {y[wrong][0]:g}",
            f"with classes = {classes}: 0 to {classes - 1}",
        )
    return x, y.astype(np.int64)


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
