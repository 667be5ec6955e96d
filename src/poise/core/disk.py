"""Files that survive a power cut: written whole, flushed to the disk, then named."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

DRAFT = ".part"
"""The end of the names of temporary files."""


def write_files(files: Mapping[Path, bytes]) -> None:
    """Write files whole or not at all, flushed to the disk together with their names.

    Each content goes to a new temporary file, which no link can redirect. A rename
    gives it its name once the disk has it, so that readers never see half a file. An
    `OSError` has the name of the file that could not be written.
    """
    drafts: dict[Path, Path] = {}
    path = Path()
    try:
        for path, content in files.items():
            make_folder(path.parent)
            drafts[path] = _draft_of(path)
            _write_new(drafts[path], content)
        for path, draft in drafts.items():
            os.replace(draft, path)
        for folder in {path.parent for path in files}:
            flush_folder(folder)
    except BaseException as error:
        for draft in drafts.values():
            draft.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = str(path)
        raise


def _draft_of(path: Path) -> Path:
    """Return the name of a temporary file beside a file, which nobody can guess."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}{DRAFT}")


def create(path: Path) -> int:
    """Create a file and return its descriptor; raise where a file or link has the name."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    return os.open(path, flags, 0o666)


def _write_new(path: Path, content: bytes) -> None:
    """Create a file and flush it to the disk; raise where the name is taken."""
    with os.fdopen(create(path), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Make a folder and its parents, and flush their names to the disk.

    ``mode`` has the permissions of the folder; its parents get the usual ones.
    """
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True, mode=mode)
    for made in missing:
        flush_folder(made.parent)


def flush_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
