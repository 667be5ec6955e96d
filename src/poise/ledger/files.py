"""Files that are either whole or not there, and what to say where the disk refuses them."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from poise.core.errors import LedgerError


def write_whole(path: Path, content: bytes) -> None:
    """Write beside the place and move there: a reader never sees half a file, whenever the writer
    dies.
    """
    part = path.with_suffix(".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(content)
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise write_failure(path, error) from error


def write_failure(path: Path, error: OSError) -> LedgerError:
    """The failure of a file that could not be written."""
    return LedgerError(f"cannot write {path}: {error.strerror}", hint(path, error))


def hint(path: Path | None, error: Exception) -> str:
    """What to do about a failure of the disk or the database."""
    no_room = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    full = no_room or "full" in str(error) or _no_space(path)
    return f"{'free some space' if full else 'remove the cause'}, then `poise resume` the run"


def _no_space(path: Path | None) -> bool:
    """Whether hardly anything is left where the path lies; SQLite calls some cases of that an I/O
    error.
    """
    try:
        return path is not None and shutil.disk_usage(path.parent).free < 2**20
    except OSError:
        return False
