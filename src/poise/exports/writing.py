"""Write exported files whole, and name the places that cannot be written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from poise.core import disk
from poise.core.errors import PoiseError


def write(files: Mapping[Path, bytes]) -> None:
    """Write files whole or not at all."""
    try:
        disk.write_files(files)
    except OSError as error:
        raise PoiseError(
            f"cannot write {error.filename}: {error.strerror}",
            "free some space, or choose another place",
        ) from error


def file_at(path: str | Path, name: str) -> Path:
    """Return the file that a path means: ``name`` in it, if it is a folder.

    A path that does not exist is a folder if it has no suffix.

    >>> file_at("out/model.onnx", "x.onnx").as_posix(), file_at("out", "x.onnx").as_posix()
    ('out/model.onnx', 'out/x.onnx')
    """
    place = Path(path)
    if place.is_dir() or not place.suffix:
        return place / name
    return place
