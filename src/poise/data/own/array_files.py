"""Arrays in files: `.npz` archives, and memory-mapped `.npy` files."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poise.core.errors import DataError, InvalidOption
from poise.data.own.encoding import Read
from poise.data.sources.inputs import Features


def read_array_files(data: Sequence[Path], label: str | None = None) -> list[Read]:
    """Return the arrays of files; `.npy` files stay on disk, memory-mapped.

    Args:
        data: ``.npz`` files with x and y (and perhaps keys), folders with x.npy and
            y.npy (and perhaps keys.npy), or ``.npy`` files of features.
        label: for ``.npy``: the file of the labels, relative to the features' file.
    """
    return [_read(path, label) for path in data]


def _read(path: Path, label: str | None) -> Read:
    if path.suffix == ".npz":
        return read_archive(path)
    if path.is_dir():
        keys = None
        if (path / "keys.npy").exists():
            keys = np.array(_mapped(path / "keys.npy"))
        return Read(_mapped(path / "x.npy"), np.array(_mapped(path / "y.npy")), keys)
    if label is None:
        raise InvalidOption(
            f"{path}: no file of labels is named",
            'for example label="y.npy"',
            where=("label",),
        )
    return Read(_mapped(path), np.array(_mapped(path.parent / label)))


def read_archive(file: Path) -> Read:
    """Return x, y and perhaps keys of an ``.npz`` file; no pickles.

    Several inputs are ``x0``, ``x1``, … for a tuple, or any other names for a dict.
    """
    try:
        with (
            file.open("rb") as stream,
            np.lib.npyio.NpzFile(stream, allow_pickle=False) as archive,
        ):
            names = [name for name in archive.files if name not in ("y", "keys")]
            several = len(names) > 1 and "x" not in names
            needed = {"y"} if several or names == ["x0"] else {"x", "y"}
            absent = sorted(needed - set(archive.files))
            if absent:
                raise DataError(
                    f"{file} has no array {absent[0]!r}",
                    f"arrays: {', '.join(archive.files)}",
                )
            keys = archive["keys"] if "keys" in archive.files else None
            return Read(_inputs(archive, names), archive["y"], keys)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{file} cannot be read as data: {error}") from error


def _inputs(archive: Mapping[str, NDArray[Any]], names: Sequence[str]) -> Features:
    """Return the only input, or a tuple or dict of several."""
    if "x" in names:
        return archive["x"]
    numbered = [f"x{k}" for k in range(len(names))]
    if sorted(names) == sorted(numbered):
        return tuple(archive[name] for name in numbered)
    return {name: archive[name] for name in names}


def _mapped(file: Path) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{file} cannot be read as data: {error}") from error
    return array
