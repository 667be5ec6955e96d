"""Strict reading: a file is what the catalogue says, or it is refused by name."""

from __future__ import annotations

import gzip
import hashlib
import math
import os
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poise.core.errors import DataError
from poise.data.catalogue import File

_IDX_TYPES: dict[int, str] = {
    0x08: "u1",
    0x09: "i1",
    0x0B: ">i2",
    0x0C: ">i4",
    0x0D: ">f4",
    0x0E: ">f8",
}


def folders() -> list[Path]:
    """Where data is looked for, first to last: ``$POISE_DATA``, then the user's cache folder.

    >>> folders()[-1].name
    'poise'
    """
    given = os.environ.get("POISE_DATA")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "poise"
    return ([Path(given)] if given else []) + [cache]


def locate(files: Iterable[File]) -> Path | None:
    """The first data folder that holds all these files, or None."""
    wanted = list(files)
    for folder in folders():
        if all((folder / file.path).is_file() for file in wanted):
            return folder
    return None


def home(name: str, files: Iterable[File]) -> Path:
    """The folder that holds these files of the data set ``name``; an error that lists them
    otherwise.
    """
    wanted = list(files)
    found = locate(wanted)
    if found is not None:
        return found
    places = " or ".join(str(folder) for folder in folders())
    listed = "; ".join(f"{file.path} ({file.checksum})" for file in wanted)
    fetchable = all(file.addresses for file in wanted)
    first = f"run 'poise data fetch {name}', or put" if fetchable else "put"
    raise DataError(
        f"{name}: its files are in no data folder", f"{first} these into {places}: {listed}"
    )


def checksum(path: Path, algorithm: str = "sha256") -> str:
    """The checksum of a file in hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, algorithm).hexdigest()


def check(folder: Path, file: File) -> Path:
    """The path of ``file`` below ``folder``, after its size and checksum were compared."""
    path = folder / file.path
    if not path.is_file():
        raise DataError(f"{path}: no such file", f"expected {file.size} bytes, {file.checksum}")
    size = path.stat().st_size
    if file.size and size != file.size:
        raise DataError(
            f"{path}: {size} bytes instead of {file.size}", "truncated or replaced; fetch it again"
        )
    found = checksum(path, file.algorithm)
    if found != file.digest:
        raise DataError(
            f"{path}: {file.algorithm} {found}, expected {file.digest}", "altered; fetch it again"
        )
    return path


def read_gzip(path: Path) -> bytes:
    """All bytes of a gzip file; a truncated or damaged one is refused."""
    try:
        with gzip.open(path) as stream:
            return stream.read()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: not a complete gzip file: {error}", "fetch it again") from error


def read_idx(path: Path, shape: tuple[int, ...]) -> NDArray[Any]:
    """An array from a gzipped IDX file that must have exactly this shape.

    The header is two zero bytes, the type, the number of axes, and one big-endian 32-bit length per
    axis; the values follow, big-endian, and nothing after them.
    """
    data = read_gzip(path)
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _IDX_TYPES:
        raise DataError(f"{path}: not an IDX file (magic {data[:4].hex() or 'missing'})")
    axes, start = data[3], 4 + 4 * data[3]
    found = (
        tuple(int(length) for length in np.frombuffer(data[4:start], ">u4"))
        if len(data) >= start
        else ()
    )
    if axes != len(shape) or found != shape:
        raise DataError(f"{path}: holds an array of shape {found}, expected {shape}")
    kind = np.dtype(_IDX_TYPES[data[2]])
    expected = start + math.prod(shape) * kind.itemsize
    if len(data) != expected:
        raise DataError(
            f"{path}: {len(data)} bytes unpacked, expected {expected}", "fetch it again"
        )
    return np.frombuffer(data, kind, offset=start).reshape(shape)


def read_npz(path: Path, arrays: dict[str, tuple[tuple[int, ...], str]]) -> dict[str, NDArray[Any]]:
    """Named arrays from an .npz file, each with the shape and type it must have. Never
    unpickles.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            taken = {name: archive[name] for name in arrays}
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(
            f"{path}: cannot be read as an .npz file: {error}", "fetch it again"
        ) from error
    for name, (shape, kind) in arrays.items():
        got = taken[name]
        if got.shape != shape or got.dtype != np.dtype(kind):
            raise DataError(f"{path}: {name} is {got.dtype} {got.shape}, expected {kind} {shape}")
    return taken


def check_labels(path: Path, labels: NDArray[Any], classes: int) -> NDArray[np.int64]:
    """Labels as int64, after making sure that all lie in ``0 … classes - 1``."""
    if labels.size and (labels.min() < 0 or labels.max() >= classes):
        raise DataError(f"{path}: a label lies outside 0..{classes - 1}")
    return labels.astype(np.int64)
