"""Write files whole or not at all, and turn disk failures into errors with a hint."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from poise.core.errors import LedgerError

REQUEST = "request.json"
"""The file in a branch made by an unlearning request: its options, and the decision about it."""


def write_whole(path: Path, content: bytes) -> None:
    """Write a temporary file and rename it, so that readers never see half a file."""
    part = path.with_suffix(".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(content)
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise write_failure(path, error) from error


def write_failure(path: Path, error: OSError) -> LedgerError:
    """Return the error for a file that could not be written."""
    return LedgerError(f"cannot write {path}: {error.strerror}", hint(path, error))


def hint(path: Path | None, error: Exception) -> str:
    """Return what to do about a failure of the disk or the database."""
    full = no_room(error) or "full" in str(error) or _disk_is_full(path)
    remedy = "free some space" if full else "remove the cause"
    if path is not None and _of_request(path):
        return f"{remedy}, then repeat the unlearning request"
    return f"{remedy}, then `poise resume` the run"


def no_room(error: Exception) -> bool:
    """Whether an error is that of a full disk or a used-up quota."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def _of_request(path: Path) -> bool:
    """Whether a file belongs to the branch of an unlearning request, or begins one."""
    folders = (path.parent, path.parent.parent)
    return path.name == REQUEST or any((f / REQUEST).exists() for f in folders)


def _disk_is_full(path: Path | None) -> bool:
    """Whether less than 1 MiB is free; SQLite reports some full disks as I/O errors."""
    try:
        return path is not None and shutil.disk_usage(path.parent).free < 2**20
    except OSError:
        return False
