"""The runs below a folder by name, with a cache of the results read from them."""

from __future__ import annotations

import os
import sys
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from poise.core.errors import LedgerError, suggest
from poise.ledger.store import MODELS, begun
from poise.ledger.summary import RunSummary, Stamp, read_summary, stamp
from poise.results import Run, open_run

T = TypeVar("T")

DEEPEST = 6
"""Maximum depth of run folders below the root."""

MAX_CACHED = 2_000
"""Maximum number of results in the cache."""

MAX_BYTES = 64 * 2**20
"""Maximum size of the cached texts and tables together."""

TABLE = "contributions"


class NoSuchRun(LedgerError):
    """The folder of the console has no run of this name."""


class NotInRun(NoSuchRun):
    """A run has no such client, action or certificate."""


class Library:
    """The runs below a folder.

    The name of a run is its path relative to the folder (``exp/seed-0``). If the folder
    is itself a run, the name is the folder's name. No name leads out of the folder,
    neither through ``..`` nor through a link.

    Each request opens its runs and closes them: SQLite connections belong to one
    thread, and a running experiment adds rounds. `cached` keeps expensive results until
    the ledger changes.
    """

    def __init__(self, root: str | Path) -> None:
        whole = Path(root).resolve()
        self.root = _from_here(whole)
        self._base = self.root
        if begun(whole):  # the root is itself a run
            self._base = _from_here(whole.parent)
        self._cache: OrderedDict[tuple[str, Hashable], tuple[Any, Any]] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def names(self) -> list[str]:
        """The names of all runs, sorted; the branches of a run follow it."""
        return sorted(
            (p.relative_to(self._base).as_posix() for p in _runs(self.root, DEEPEST)),
            key=_natural,
        )

    def folder(self, name: str) -> Path:
        """The folder of a run; raises `NoSuchRun` for every other name."""
        folder = self._base.parent
        if name and "\0" not in name:
            folder = Path(os.path.normpath(self._base / name))
        if not (folder.resolve().is_relative_to(self.root.resolve()) and begun(folder)):
            raise NoSuchRun(
                f"no run {name!r} in {self.root}", suggest(name, self.names())
            )
        return folder

    def name(self, folder: Path) -> str:
        """The name of a run folder; the inverse of `folder`."""
        return folder.resolve().relative_to(self._base.resolve()).as_posix()

    @contextmanager
    def open(self, name: str) -> Iterator[Run]:
        """Open a run for reading, for this thread and the duration of the block.

        The cache keeps the table of contributions, because most figures need it.
        """
        folder = self.folder(name)
        at = stamp(folder)
        run = open_run(folder)
        try:
            with self._lock:
                entry = self._cache.get((name, TABLE))
            if entry is not None and entry[0] == at:
                run.rounds, run.contributions = entry[1]
            yield run
            if TABLE in vars(run) and at == stamp(folder):
                self.store(name, TABLE, at=at, value=(run.rounds, run.contributions))
        finally:
            run.close()

    def read_summary(self, name: str) -> RunSummary:
        """The summary of a run, read again if its files changed or it is running."""
        folder = self.folder(name)
        now = stamp(folder)
        summary: RunSummary = self.cached(
            name, "read_summary", lambda: read_summary(folder), at=now
        )
        if summary.state == "running":  # a process that dies changes no file
            summary = read_summary(folder)
            self.store(name, "read_summary", at=now, value=summary)
        return summary

    def cached(
        self, name: str, key: Hashable, make: Callable[[], T], at: Stamp | None = None
    ) -> T:
        """The result of ``make``, cached until the files of the run change."""
        if at is None:
            at = stamp(self.folder(name))
        with self._lock:
            entry = self._cache.get((name, key))
            if entry is not None and entry[0] == at:
                self._cache.move_to_end((name, key))
                return entry[1]  # type: ignore[no-any-return]
        value = make()
        self.store(name, key, at=at, value=value)
        return value

    def cached_for(
        self, names: Sequence[str], key: Hashable, make: Callable[[], T]
    ) -> T:
        """The result of ``make``, cached until the files of one of the runs change."""
        at = tuple(time for name in names for time in stamp(self.folder(name)))
        return self.cached("", (key, *names), make, at=at)

    def store(self, name: str, key: Hashable, at: Stamp, value: object) -> None:
        """Add a result to the cache; a full cache drops the least recently used."""
        with self._lock:
            self._drop((name, key))
            self._cache[name, key] = (at, value)
            self._bytes += _size(value)
            while len(self._cache) > MAX_CACHED or (
                self._bytes > MAX_BYTES and len(self._cache) > 1
            ):
                self._drop(next(iter(self._cache)))

    def _drop(self, key: tuple[str, Hashable]) -> None:
        entry = self._cache.pop(key, None)
        if entry is not None:
            self._bytes -= _size(entry[1])


@runtime_checkable
class HasBytes(Protocol):
    """A result that knows its size in memory."""

    @property
    def nbytes(self) -> int:
        """Size in bytes."""


def _size(value: object) -> int:
    if isinstance(value, tuple):
        return sum(map(_size, value))
    if isinstance(value, str | bytes | np.ndarray):
        return sys.getsizeof(value)
    if isinstance(value, HasBytes):
        return value.nbytes
    return 1024


def _from_here(folder: Path) -> Path:
    """The folder relative to the working directory, if it lies inside it."""
    here = Path.cwd()
    if folder.is_relative_to(here):
        return folder.relative_to(here)
    return folder


def _runs(folder: Path, depth: int) -> Iterator[Path]:
    if begun(folder):
        yield folder
    if depth == 0:
        return
    try:
        below = [
            entry.path
            for entry in os.scandir(folder)
            if entry.is_dir(follow_symlinks=False)
        ]
    except OSError:
        return  # skip unreadable folders
    for path in below:
        if (
            not os.path.basename(path).startswith(".")
            and os.path.basename(path) != MODELS
        ):
            yield from _runs(Path(path), depth - 1)


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort key with numeric seeds: ``seed-2`` before ``seed-10``."""
    return [
        (len(part), part) if part.startswith("seed-") else (0, part)
        for part in name.split("/")
    ]
