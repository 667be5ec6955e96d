"""Write files whole or not at all, and turn disk failures into errors with a hint."""

from __future__ import annotations

import errno
import shutil
import sqlite3
from collections.abc import Mapping
from pathlib import Path

from poise.core import disk
from poise.core.errors import LedgerError

REQUEST = "request.json"
"""The file in a branch made by an unlearning request: its options, and the decision about it."""


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole or not at all; a power cut after the call cannot lose it."""
    write_files({path: content})


def write_files(files: Mapping[Path, bytes]) -> None:
    """Write files whole or not at all; a power cut after the call cannot lose them."""
    try:
        disk.write_files(files)
    except OSError as error:
        raise write_failure(Path(error.filename), error) from error


def drop_drafts(folder: Path) -> None:
    """Delete the temporary files that killed processes left in a folder."""
    for draft in folder.glob(f"*{disk.DRAFT}"):
        if not draft.is_symlink() and draft.is_file():
            draft.unlink(missing_ok=True)


def refuse_link(path: Path) -> None:
    """Raise where a name inside a run folder is a link: it may point anywhere."""
    if path.is_symlink():
        raise LedgerError(
            f"{path} is a link: poise does not follow links inside a run folder",
            "replace it by the file itself",
        )


def write_failure(path: Path, error: OSError) -> LedgerError:
    """Return the error for a file that could not be written."""
    return LedgerError(f"cannot write {path}: {error.strerror}", hint(path, error))


def hint(path: Path | None, error: Exception) -> str:
    """Return what to do about a failure of the disk or the database."""
    first = remedy(path, error)
    if path is not None and _of_request(path):
        return f"{first}, then repeat the unlearning request"
    return f"{first}, then `poise resume` the run"


def remedy(path: Path | None, error: Exception) -> str:
    """Return how to end a failure of the disk or the database, before anything else."""
    cause = error.__cause__
    if is_full(path, error) or (isinstance(cause, Exception) and no_room(cause)):
        return "free some space"
    return "remove the cause"


def is_full(path: Path | None, error: Exception) -> bool:
    """Whether a failure to write a file is that of a full disk."""
    return no_room(error) or "full" in str(error) or _disk_is_full(path)


def no_room(error: Exception) -> bool:
    """Whether an error is that of a full disk or a used-up quota."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL
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
