"""Which reader reads which kind of the user's data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from torch.utils.data import DataLoader, Dataset

from poise.core.errors import DataError, InvalidOption
from poise.data.own.array_files import read_array_files
from poise.data.own.csv_files import csv_table
from poise.data.own.encoding import Read, read_tables
from poise.data.own.frames import frame_table, is_frame
from poise.data.own.hugging_face import hugging_face_table, is_hugging_face
from poise.data.own.parquet_files import parquet_table
from poise.data.own.pictures import read_images
from poise.data.own.table import Table
from poise.data.own.torch_datasets import read_torch

TABLES: dict[str, Callable[[Path], Table]] = {
    ".csv": csv_table,
    ".parquet": parquet_table,
}
SUFFIXES = (*TABLES, ".npy", ".npz")

Reader: TypeAlias = Callable[..., list[Read]]


def read_pairs(data: Sequence[tuple[Any, Any]]) -> list[Read]:
    """Return pairs (x, y) as they are."""
    return [Read(x, y) for x, y in data]


def _no_data(given: object) -> InvalidOption:
    """Return the error of something that is no data of any kind."""
    shown = type(given).__name__
    if given is None or isinstance(given, str | int | float):
        shown = repr(given)
    message = f"the data must be a pair (x, y) of arrays, not {shown:.60}"
    hint = "or a data frame, a data set of PyTorch or Hugging Face, or a path"
    if isinstance(given, DataLoader):
        message = "the data must be a pair (x, y) of arrays, not a DataLoader"
        hint = "give its dataset"
    elif isinstance(given, Iterator):
        message = "the data must be a pair (x, y) of arrays, not a generator"
        hint = "collect its samples in arrays first"
    elif isinstance(given, list | tuple):
        message = (
            f"the data must be a pair (x, y) of arrays, not a {type(given).__name__} "
            f"of {len(given)} items"
        )
        hint = "for samples in pairs write x, y = zip(*data)"
    return InvalidOption(message, hint, where=("source",))


def is_path(source: object) -> bool:
    """Return whether a source is a path: it has a slash or the suffix of a data file.

    >>> is_path("patients.csv"), is_path("folder/"), is_path("digits")
    (True, True, False)
    """
    if isinstance(source, Path):
        return True
    if not isinstance(source, str):
        return False
    return "/" in source or Path(source).suffix in SUFFIXES


def is_many(source: object) -> bool:
    """Return whether a source is a list (or a table of names) of data sets."""
    if isinstance(source, Mapping):
        return True
    return (
        isinstance(source, list)
        and len(source) > 0
        and all(_is_one(item) for item in source)
    )


def _is_one(item: object) -> bool:
    if isinstance(item, tuple):
        return len(item) == 2 and all(_has_rows(part) for part in item)
    return (
        is_path(item)
        or isinstance(item, Dataset)
        or is_frame(item)
        or is_hugging_face(item)
    )


def _has_rows(part: Any) -> bool:
    """Return whether this may be features or labels: no number, but many or several."""
    return isinstance(part, Mapping | list | tuple) or np.ndim(part) > 0


def is_own(source: object) -> bool:
    """Return whether a source is the user's own data, not the name of a data set."""
    return not isinstance(source, str) or is_path(source)


def members_of(source: object) -> list[object]:
    """Return the data sets of a source: one per client, or the only one."""
    if isinstance(source, Mapping):
        return list(source.values())
    if is_many(source):
        assert isinstance(source, list)
        return source
    return [source]


def names_files(source: object) -> bool:
    """Return whether a source consists of paths alone, so that a file can name it."""
    members = members_of(source)
    return len(members) > 0 and all(is_path(member) for member in members)


def with_folder(source: object, folder: Path) -> Any:
    """Return a source with absolute paths; relative ones start at ``folder``."""
    if isinstance(source, Mapping):
        return {str(name): with_folder(part, folder) for name, part in source.items()}
    if is_many(source):
        return [with_folder(part, folder) for part in members_of(source)]
    if is_path(source):
        return str((folder / Path(str(source)).expanduser()).resolve())
    return source


def reader_of(member: object) -> Reader:
    """Return the function that reads a data set of this kind."""
    if is_path(member):
        path = Path(str(member))
        if path.suffix in TABLES:
            return read_tables
        if path.suffix in (".npy", ".npz") or (path / "x.npy").exists():
            return read_array_files
        if path.is_dir():
            return read_images
        if not path.exists():
            raise DataError(f"{path}: no such file or folder", where=("source",))
        raise InvalidOption(
            f"{path}: unknown file type {path.suffix!r}",
            f"known: {', '.join(SUFFIXES)}, or a folder",
            where=("source",),
        )
    if is_frame(member) or is_hugging_face(member):
        return read_tables
    if isinstance(member, Dataset):
        return read_torch
    if not isinstance(member, tuple | list) or len(member) != 2:
        raise _no_data(member)
    return read_pairs


def readers_of(source: object) -> list[Reader]:
    """Return the readers of all data sets of a source, each once."""
    return list(dict.fromkeys(reader_of(member) for member in members_of(source)))


def opened(member: Any) -> Any:
    """Return a data set in the form that its reader takes: a table, a path, itself."""
    if is_frame(member):
        return frame_table(member)
    if is_hugging_face(member):
        return hugging_face_table(member)
    if not is_path(member):
        return member
    path = Path(str(member))
    if not path.exists():
        raise DataError(f"{path}: no such file or folder", where=("source",))
    if path.suffix not in TABLES:
        return path
    try:
        return TABLES[path.suffix](path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as data: {error}") from error
