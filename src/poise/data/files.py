"""Data folders, checksums, and strict readers of gzip, IDX and .npz files."""

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
from poise.data.catalogue import DataFile

_IDX_TYPES: dict[int, str] = {
    0x08: "u1",
    0x09: "i1",
    0x0B: ">i2",
    0x0C: ">i4",
    0x0D: ">f4",
    0x0E: ">f8",
}


def folders() -> list[Path]:
    """Return the data folders in order: ``$POISE_DATA``, then the user's cache folder.

    >>> folders()[-1].name
    'poise'
    """
    given = os.environ.get("POISE_DATA")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "poise"
    if given:
        return [Path(given), cache]
    return [cache]


def locate(files: Iterable[DataFile]) -> Path | None:
    """Return the first data folder that holds all these files, or None."""
    wanted = list(files)
    for folder in folders():
        if all((folder / file.path).is_file() for file in wanted):
            return folder
    return None


def home(name: str, files: Iterable[DataFile]) -> Path:
    """Return the data folder that holds these files of the data set ``name``.

    Raises `DataError` with a list of the files if no folder holds all of them.
    """
    wanted = list(files)
    folder = locate(wanted)
    if folder is not None:
        return folder
    places = " or ".join(str(place) for place in folders())
    listed = "; ".join(f"{file.path} ({file.checksum})" for file in wanted)
    hint = f"put these into {places}: {listed}"
    if all(file.addresses for file in wanted):
        hint = f"run 'poise data fetch {name}', or {hint}"
    raise DataError(f"{name}: its files are in no data folder", hint)


def checksum(path: Path, algorithm: str = "sha256") -> str:
    """Return the checksum of a file in hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, algorithm).hexdigest()


def check(folder: Path, file: DataFile) -> Path:
    """Check size and checksum of ``file`` below ``folder``, and return its path."""
    path = folder / file.path
    if not path.is_file():
        raise DataError(
            f"{path}: no such file", f"expected {file.size} bytes, {file.checksum}"
        )
    size = path.stat().st_size
    if file.size and size != file.size:
        raise DataError(
            f"{path}: {size} bytes instead of {file.size}",
            "truncated or replaced; fetch it again",
        )
    digest = checksum(path, file.algorithm)
    if digest != file.digest:
        raise DataError(
            f"{path}: {file.algorithm} {digest}, expected {file.digest}",
            "altered; fetch it again",
        )
    return path


def read_gzip(path: Path) -> bytes:
    """Return all bytes of a gzip file; raises `DataError` for a damaged one."""
    try:
        with gzip.open(path) as stream:
            return stream.read()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"{path}: not a complete gzip file: {error}", "fetch it again"
        ) from error


def read_idx(path: Path, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return the array of a gzipped IDX file, which must have exactly this shape.

    The header is two zero bytes, the type, the number of axes, and one big-endian
    32-bit length per axis. The big-endian values follow, and then the file ends.
    """
    data = read_gzip(path)
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _IDX_TYPES:
        raise DataError(
            f"{path}: not an IDX file (magic {data[:4].hex() or 'missing'})"
        )
    axes = data[3]
    start = 4 + 4 * axes
    lengths: tuple[int, ...] = ()
    if len(data) >= start:
        lengths = tuple(int(length) for length in np.frombuffer(data[4:start], ">u4"))
    if axes != len(shape) or lengths != shape:
        raise DataError(f"{path}: holds an array of shape {lengths}, expected {shape}")
    kind = np.dtype(_IDX_TYPES[data[2]])
    expected = start + math.prod(shape) * kind.itemsize
    if len(data) != expected:
        raise DataError(
            f"{path}: {len(data)} bytes unpacked, expected {expected}", "fetch it again"
        )
    return np.frombuffer(data, kind, offset=start).reshape(shape)


def read_npz(
    path: Path, arrays: dict[str, tuple[tuple[int, ...], str]]
) -> dict[str, NDArray[Any]]:
    """Return named arrays of an .npz file with given shapes and types; no pickles."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            held = {name: archive[name] for name in arrays}
    except (
        OSError,
        EOFError,
        ValueError,
        KeyError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise DataError(
            f"{path}: cannot be read as an .npz file: {error}", "fetch it again"
        ) from error
    for name, (shape, kind) in arrays.items():
        array = held[name]
        if array.shape != shape or array.dtype != np.dtype(kind):
            raise DataError(
                f"{path}: {name} is {array.dtype} {array.shape}, expected {kind} "
                f"{shape}"
            )
    return held


def check_labels(path: Path, labels: NDArray[Any], classes: int) -> NDArray[np.int64]:
    """Return the labels as int64; raises `DataError` for one that is no class."""
    if labels.size and (labels.min() < 0 or labels.max() >= classes):
        raise DataError(f"{path}: a label lies outside 0..{classes - 1}")
    return labels.astype(np.int64)
