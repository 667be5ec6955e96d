"""Read files of a run folder that somebody else may have made.

A foreign folder can hold links to files outside, pipes that block whoever opens them, or
files of any size. These functions open regular files only, follow no link inside the run
folder, and read a limited number of bytes.
"""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from poise.core.errors import LedgerError, PoiseError

MOST = 16 * 2**20
"""Maximum size of a text file in a run folder: experiment, certificate, request, tags."""

FILES = (
    "ledger.sqlite",
    "ledger.sqlite-wal",
    "ledger.sqlite-shm",
    "ledger.sqlite-journal",
    "experiment.toml",
    "lock",
    "certificate.json",
    "certificate.dsse",
    "countersignatures.jsonl",
    "evidence.jsonl",
    "request.json",
    "explanation.json",
    "shards.json",
)
"""Files of a run folder, which must be regular files."""

CHANGED = (*FILES[:4], "countersignatures.jsonl", "evidence.jsonl")
"""Those of them that poise changes in place; it replaces the others."""

FOLDERS = ("models", "unlearning", "console")
"""Folders of a run folder, which must be folders and hold no links or pipes."""

LARGE = 2**30
"""Bytes from which poise refuses a file that is mostly holes: it takes long to read, and
somebody can make it at no cost."""

MOST_ROUNDS = 10**9
MOST_CLIENTS = 10**7
NUMBERS = {"clients": MOST_CLIENTS, "trainable": 2**40, "seed": 10**19}
"""Metadata that are numbers, and the largest ones that poise accepts."""

UNREADABLE = (
    sqlite3.Error,
    struct.error,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
)
"""Exceptions that reading a run raises where its files hold something unexpected."""


def open_regular(
    path: Path, flags: int = os.O_RDONLY, *, below: int = 0, mode: int = 0o644
) -> int:
    """Open a regular file and return its descriptor; raises `OSError` for anything else.

    Args:
        path: the file; a link is refused.
        flags: flags of `os.open`.
        below: number of folders above the file that must not be links either.
        mode: permissions of a new file.
    """
    places = [path, *path.parents]
    folder = os.open(places[below + 1], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for place in reversed(places[1 : below + 1]):
            inner = _open_in(folder, place, os.O_RDONLY | os.O_DIRECTORY)
            os.close(folder)
            folder = inner
        file = _open_in(folder, path, flags | os.O_NONBLOCK, mode)
    finally:
        os.close(folder)
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    if _is_hollow(status):
        os.close(file)
        raise OSError(errno.EFBIG, "a large file of holes", str(path))
    if flags & os.O_ACCMODE != os.O_RDONLY and status.st_nlink > 1:
        os.close(file)  # writing would change the other file
        raise OSError(errno.EMLINK, "a hard link to another file", str(path))
    return file


def _is_hollow(status: os.stat_result) -> bool:
    """Whether a file is large, but hardly any of it is on the disk."""
    return status.st_size > LARGE and status.st_blocks * 512 < status.st_size // 100


def _is_shared(path: Path) -> bool:
    """Whether a file exists and has other names."""
    try:
        return os.lstat(path).st_nlink > 1
    except OSError:
        return False


def _open_in(folder: int, path: Path, flags: int, mode: int = 0o644) -> int:
    """Open a file or folder by its name in an open folder, without following a link."""
    every = os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path.name, flags | every, mode, dir_fd=folder)
    except OSError as error:
        words = error.strerror
        if path.is_symlink():
            words = "a link, which poise does not follow inside a run folder"
        raise OSError(error.errno, words, str(path)) from error


def read_bytes(path: Path, most: int = MOST, *, below: int = 0) -> bytes:
    """Read a regular file of at most this size."""
    with os.fdopen(open_regular(path, below=below), "rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"larger than {most} bytes", str(path))
    return content


def check_regular(path: Path, *, below: int = 0) -> None:
    """Raise `OSError` unless this is a regular file; for libraries that open paths."""
    os.close(open_regular(path, below=below))


def read_end(path: Path, most: int, *, below: int = 0) -> str:
    """Read the last bytes of a regular file as text; empty if it does not exist."""
    try:
        file = os.fdopen(open_regular(path, below=below), "rb")
    except FileNotFoundError:
        return ""
    with file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(size - most, 0))
        return file.read(most).decode(errors="replace")


def read_text(path: Path, most: int = MOST, *, below: int = 0) -> str:
    """Read a regular file in UTF-8; a wrong byte raises `ValueError`."""
    return read_bytes(path, most, below=below).decode()


def read_json(path: Path, most: int = MOST, *, below: int = 0) -> Any:
    """Read a JSON file; raises `ValueError` also for one that is nested too deeply."""
    return parse_json(read_bytes(path, most, below=below))


def parse_json(content: bytes | str) -> Any:
    """Parse JSON; raises `ValueError` also for a document that is nested too deeply."""
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def check_folder(folder: Path, *, writing: bool = False) -> None:
    """Raise `LedgerError` where files of a run folder are links, pipes or the like.

    The run folder itself may be a link: the user named it. Where poise is going to
    write, it refuses hard links, too: it would change the other file.
    """
    for name in FILES:
        _check(folder / name, stat.S_ISREG, "file")
    for name in CHANGED:
        if writing and _is_shared(folder / name):
            raise _refused(folder / name, "a hard link to another file")
    for name in FOLDERS:
        place = folder / name
        if _check(place, stat.S_ISDIR, "folder"):
            with os.scandir(place) as entries:
                for entry in entries:
                    if not (
                        entry.is_file(follow_symlinks=False)
                        or entry.is_dir(follow_symlinks=False)
                    ):
                        raise _refused(place / entry.name, "a link or a pipe")


def _check(path: Path, is_expected: Any, expected: str) -> bool:
    """Whether a path exists; raises where it is not what it must be."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    if stat.S_ISLNK(status.st_mode):
        raise _refused(path, "a link")
    if not is_expected(status.st_mode):
        raise _refused(path, f"not a regular {expected}")
    if _is_hollow(status):
        raise _refused(path, "a large file of holes")
    return True


def _refused(path: Path, what: str) -> LedgerError:
    return LedgerError(
        f"{path} is {what}, which poise does not open in a run folder",
        "put a copy of the file or folder in its place, if you trust it",
    )


def check_meta(meta: dict[str, str]) -> None:
    """Raise `ValueError` where metadata that poise reads as numbers are none."""
    for key, value in meta.items():
        if not (isinstance(key, str) and isinstance(value, str)):
            raise ValueError(f"the metadata {key!r:.40} are not a text")
        if len(value) > MOST:
            raise ValueError(f"the metadata {key!r:.40} are longer than {MOST}")
    for key, most in NUMBERS.items():
        text = meta.get(key, "0")
        if not (text.isascii() and text.isdigit() and len(text) < 20):
            raise ValueError(f"the metadata {key!r} are no number: {text!r:.40}")
        if int(text) > most:
            raise ValueError(f"the metadata {key!r} are too large: {text}")


@contextmanager
def readable(what: object) -> Iterator[None]:
    """Turn the exceptions of unexpected content into a `LedgerError` that names the run."""
    try:
        yield
    except PoiseError:
        raise
    except UNREADABLE as error:
        raise unreadable(what, error) from error


def unreadable(what: object, error: BaseException) -> LedgerError:
    """The error for a run whose files hold something unexpected."""
    words = " ".join(str(error).split())[:300] or "no details"
    return LedgerError(
        f"{what} cannot be read: {type(error).__name__}: {words}",
        "its files are damaged, or poise did not write them; restore them from a backup",
    )
