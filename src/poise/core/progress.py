"""Progress of runs in Python on stderr, shown to people who wait.

Bars are in `poise.core.progress_bars`, which is imported when one appears: rich takes
longer to import than a short run takes.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from poise.core.progress_bars import Bar
    from poise.core.types import Record

    Observer = Callable[[Record], None]

PATIENCE = 2.0
"""Seconds after which a run in Python shows its progress."""

PACE = 0.5
"""Seconds between two lines of progress in a notebook."""


def scores_of(record: Record) -> str:
    """Return the metrics of a round in a few words."""
    scores = [f"{k} {v:.3f}" for k, v in record.metrics.items() if isinstance(v, float)]
    return "  ".join(scores)


class LateBar:
    """A bar of one run that appears after `PATIENCE` seconds, in a terminal."""

    def __init__(self, label: str, rounds: int | None, patience: float) -> None:
        self._bar: Bar | None = None
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
        from rich.errors import LiveError

        from poise.core.progress_bars import Bar

        with self._lock:
            if not self._open:
                return
            self._bar = Bar(quiet=False)
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
            if self._bar is not None:
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
        sys.stderr.write(f"\r{line:<{self._width}}")
        sys.stderr.flush()

    def close(self) -> None:
        """End the line."""
        if self._width:
            sys.stderr.write("\n")
            sys.stderr.flush()


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
    notebook = _in_notebook()
    interactive = sys.stderr.isatty() or notebook
    if shown is False or (shown is None and not interactive):
        yield ()
        return
    patience = 0.0 if shown else PATIENCE
    kind = NotebookLine if notebook else LateBar
    observer = kind(label, rounds, patience)
    try:
        yield (observer,)
    finally:
        observer.close()


def _in_notebook() -> bool:
    """Return whether this process runs a notebook."""
    if "IPython" not in sys.modules:
        return False
    from poise.core.progress_bars import notes

    return notes.is_jupyter
