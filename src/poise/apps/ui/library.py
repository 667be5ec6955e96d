"""The runs below a folder, by name, and what is worth keeping of what was read from them."""

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
from poise.ledger.run import Run, open_run
from poise.ledger.store import MODELS, begun
from poise.ledger.summary import RunSummary, Stamp, read_summary, stamp

T = TypeVar("T")

DEEPEST = 6
"""Folders below the root in which runs are looked for."""

MOST_KEPT, MOST_BYTES = 2_000, 64 * 2**20
"""Results kept in memory, and what those that are texts or tables may weigh together."""

TABLE = "contributions"


class NoSuchRun(LedgerError):
    """No run of this name lies in the folder that the console shows."""


class NotThere(NoSuchRun):
    """A run does not have that: a client, an action, a certificate."""


class Library:
    """The runs below a folder.

    A run is named by its path relative to the folder (``exp/seed-0``); where the folder is itself a
    run, by its own name. No name leads out of the folder, not through ``..`` and not through a
    link.

    Runs are opened for one request and closed after it: SQLite's connections belong to one thread,
    and a run that is still written has more rounds the next time. What is expensive is kept by
    `kept` until the ledger changes.
    """

    def __init__(self, root: str | Path) -> None:
        whole = Path(root).resolve()
        self.root = _from_here(whole)
        self._base = _from_here(whole.parent) if begun(whole) else self.root
        self._kept: OrderedDict[tuple[str, Hashable], tuple[Any, Any]] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def names(self) -> list[str]:
        """Every run, in the order of names; branches of a run follow it."""
        return sorted(
            (p.relative_to(self._base).as_posix() for p in _runs(self.root, DEEPEST)), key=_natural
        )

    def folder(self, name: str) -> Path:
        """The folder of a run; `NoSuchRun` for a name that is none, wherever it may lead."""
        folder = (
            Path(os.path.normpath(self._base / name))
            if name and "\0" not in name
            else self._base.parent
        )
        if not (folder.resolve().is_relative_to(self.root.resolve()) and begun(folder)):
            raise NoSuchRun(f"there is no run {name!r} in {self.root}", suggest(name, self.names()))
        return folder

    def name(self, folder: Path) -> str:
        """The name of a run folder; the inverse of `folder`."""
        return folder.resolve().relative_to(self._base.resolve()).as_posix()

    @contextmanager
    def open(self, name: str) -> Iterator[Run]:
        """A run to read, for this thread and the time of the block.

        The table of contributions, which most figures begin with, is read once for all of them.
        """
        folder = self.folder(name)
        at = stamp(folder)
        run = open_run(folder)
        try:
            with self._lock:
                there = self._kept.get((name, TABLE))
            if there is not None and there[0] == at:
                run.rounds, run.contributions = there[1]
            yield run
            if TABLE in vars(run) and at == stamp(folder):
                self.keep(name, TABLE, at, (run.rounds, run.contributions))
        finally:
            run.close()

    def read_summary(self, name: str) -> RunSummary:
        """What a run says at a read_summary; looked at anew only where its files changed, or its
        process may have died.
        """
        folder = self.folder(name)
        now = stamp(folder)
        found: RunSummary = self.kept(name, "read_summary", lambda: read_summary(folder), now)
        if found.state == "running":  # a process that dies changes no file
            found = read_summary(folder)
            self.keep(name, "read_summary", now, found)
        return found

    def kept(self, name: str, what: Hashable, make: Callable[[], T], at: Stamp | None = None) -> T:
        """What ``make`` gives, as long as the run's files are as they were when it was made."""
        now = stamp(self.folder(name)) if at is None else at
        with self._lock:
            there = self._kept.get((name, what))
            if there is not None and there[0] == now:
                self._kept.move_to_end((name, what))
                return there[1]  # type: ignore[no-any-return]
        made = make()
        self.keep(name, what, now, made)
        return made

    def kept_of(self, names: Sequence[str], what: Hashable, make: Callable[[], T]) -> T:
        """The same of several runs: as long as the files of all of them are as they were."""
        at = tuple(time for name in names for time in stamp(self.folder(name)))
        return self.kept("", (what, *names), make, at)

    def keep(self, name: str, what: Hashable, at: Stamp, made: object) -> None:
        """Keep a result; the ones longest unused go when there are too many."""
        with self._lock:
            self._drop((name, what))
            self._kept[name, what] = (at, made)
            self._bytes += _weight(made)
            while len(self._kept) > MOST_KEPT or (self._bytes > MOST_BYTES and len(self._kept) > 1):
                self._drop(next(iter(self._kept)))

    def _drop(self, key: tuple[str, Hashable]) -> None:
        there = self._kept.pop(key, None)
        if there is not None:
            self._bytes -= _weight(there[1])


@runtime_checkable
class HasBytes(Protocol):
    """A result that knows how much memory it takes."""

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""


def _weight(made: object) -> int:
    if isinstance(made, tuple):
        return sum(map(_weight, made))
    if isinstance(made, str | bytes | np.ndarray):
        return sys.getsizeof(made)
    return made.nbytes if isinstance(made, HasBytes) else 1024


def _from_here(folder: Path) -> Path:
    """A folder as a user would type it who started the console: relative where that is shorter."""
    here = Path.cwd()
    return folder.relative_to(here) if folder.is_relative_to(here) else folder


def _runs(folder: Path, depth: int) -> Iterator[Path]:
    if begun(folder):
        yield folder
    if depth == 0:
        return
    try:
        below = [entry.path for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return  # a folder that may not be read has nothing to show
    for path in below:
        if not os.path.basename(path).startswith(".") and os.path.basename(path) != MODELS:
            yield from _runs(Path(path), depth - 1)


def _natural(name: str) -> list[tuple[int, str]]:
    """Seeds in the order of numbers: ``seed-2`` before ``seed-10``."""
    return [
        (len(part), part) if part.startswith("seed-") else (0, part) for part in name.split("/")
    ]
