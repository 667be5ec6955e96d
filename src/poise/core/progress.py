"""Progress on stderr: bars of the command line, and of runs in Python."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.errors import LiveError
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:
    from poise.core.types import Record

    Observer = Callable[[Record], None]

notes = Console(stderr=True)
"""The console for progress and messages; results go to stdout."""

PATIENCE = 2.0
"""Seconds after which a run in Python shows its progress."""

PACE = 0.5
"""Seconds between two lines of progress in a notebook."""


class Bar:
    """A progress bar that shows the latest metrics and the remaining time."""

    def __init__(self, quiet: bool) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[score]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self.quiet = quiet
        self._progress = Progress(*columns, console=notes, disable=quiet)

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *error: object) -> None:
        for task in self._progress.tasks:
            # without a round there is nothing to leave, only perhaps an error to print
            self._progress.update(task.id, visible=task.completed > 0)
        self.close()

    def close(self) -> None:
        """End the bars; leave their last state on the terminal."""
        if any(task.visible for task in self._progress.tasks):
            self._progress.stop()
        elif self._progress.tasks:
            self._progress.live.stop()  # writes no empty line

    def observer(self, label: str, rounds: int | None) -> Any:
        """A callback that advances the bar of one run after each round."""
        update = self.begin(label, rounds)

        def observe(record: Record) -> None:
            update(record.index + 1, scores_of(record))

        return observe

    def begin(self, label: str, rounds: int | None) -> Callable[[int, str], None]:
        """Add the bar of one run; return the function that takes rounds and scores."""
        self._progress.start()
        task = self._progress.add_task(label, total=rounds, score="")

        def update(completed: int, score: str) -> None:
            self._progress.update(task, completed=completed)
            if score:
                self._progress.update(task, score=score)

        return update

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Hide the bar inside the block, for a question to the user."""
        self._progress.stop()
        yield
        self._progress.start()

    def counter(self, label: str, total: int) -> Any:
        """A callback that advances a new bar by one."""
        self._progress.start()
        task = self._progress.add_task(label, total=total, score="")
        return lambda: self._progress.advance(task)


def scores_of(record: Record) -> str:
    """Return the metrics of a round in a few words."""
    scores = [f"{k} {v:.3f}" for k, v in record.metrics.items() if isinstance(v, float)]
    return "  ".join(scores)


class LateBar:
    """A bar of one run that appears after `PATIENCE` seconds, in a terminal."""

    def __init__(self, label: str, rounds: int | None, patience: float) -> None:
        self._bar = Bar(quiet=False)
        self._lock = threading.Lock()
        self._open = True
        self._done = 0
        self._score = ""
        self._update: Callable[[int, str], None] | None = None
        self._label = label
        self._rounds = rounds
        self._timer = threading.Timer(patience, self._show)
        self._timer.daemon = True
        self._timer.start()

    def __call__(self, record: Record) -> None:
        """Follow a round."""
        with self._lock:
            self._done = record.index + 1
            self._score = scores_of(record) or self._score
            if self._update is not None:
                self._update(self._done, self._score)

    def _show(self) -> None:
        """Start the bar, unless the run has ended or another bar is there."""
        with self._lock:
            if not self._open:
                return
            try:
                self._update = self._bar.begin(self._label, self._rounds)
            except LiveError:
                return
            self._update(self._done, self._score)

    def close(self) -> None:
        """End the bar; leave its last state on the terminal."""
        self._timer.cancel()
        with self._lock:
            self._open = False
            self._bar.close()


class NotebookLine:
    """One line of progress in a notebook, written anew with every round."""

    def __init__(self, label: str, rounds: int | None, patience: float) -> None:
        self._label = label
        self._total = f"/{rounds}" if rounds is not None else ""
        self._start = time.monotonic()
        self._next = self._start + patience
        self._width = 0

    def __call__(self, record: Record) -> None:
        """Follow a round."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + PACE
        done = f"{self._label}  {record.index + 1}{self._total}"
        line = f"{done}  {scores_of(record)}  {now - self._start:.0f} s"
        self._width = max(self._width, len(line))
        notes.file.write(f"\r{line:<{self._width}}")
        notes.file.flush()

    def close(self) -> None:
        """End the line."""
        if self._width:
            notes.file.write("\n")
            notes.file.flush()


@contextmanager
def run_progress(
    shown: bool | None, rounds: int | None, label: str = "training"
) -> Iterator[tuple[Observer, ...]]:
    """Yield the callbacks that show the progress of a run inside the block.

    Args:
        shown: True shows progress at once, False never; None shows it after two
            seconds, in a terminal or a notebook and nowhere else.
        rounds: the number of rounds; None if it is not known.
        label: the text before the bar.
    """
    interactive = sys.stderr.isatty() or notes.is_jupyter
    if shown is False or (shown is None and not interactive):
        yield ()
        return
    patience = 0.0 if shown else PATIENCE
    kind = NotebookLine if notes.is_jupyter else LateBar
    observer = kind(label, rounds, patience)
    try:
        yield (observer,)
    finally:
        observer.close()
