"""Terminal output of the command line: messages, progress bars, Ctrl-C and JSON."""

from __future__ import annotations

import json as jsonlib
import math
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from poise.core.types import Record

INTERRUPTED = 130  # exit code after Ctrl-C

console = Console()
notes = Console(stderr=True)  # progress and messages go to stderr, results to stdout


def remark(text: str) -> None:
    """Print a line to stderr verbatim: no markup, no wrapping at the terminal width."""
    notes.print(text, markup=False, highlight=False, soft_wrap=True)


class StopFlag:
    """A flag that Ctrl-C sets; a second Ctrl-C ends the process at once.

    Ending at once is safe: the ledger keeps all finished rounds.
    """

    def __init__(self, json: bool) -> None:
        self.raised = False
        self._json = json

    def __call__(self) -> bool:
        """Whether the user asked to stop."""
        return self.raised

    def catch(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGINT."""
        if self.raised:
            notes.show_cursor()
            remark("stopped; all finished rounds are saved")
            if self._json:
                print_json(
                    {"error": "stopped", "hint": "all finished rounds are saved"}
                )
            sys.stdout.flush()
            # a normal exit would wait for workers in the middle of a round
            os._exit(INTERRUPTED)
        self.raised = True
        remark("stopping at the end of this round (press Ctrl-C again to stop at once)")


@contextmanager
def stoppable(json: bool) -> Iterator[StopFlag]:
    """Inside the block, Ctrl-C sets the yielded flag instead of raising."""
    flag = StopFlag(json)
    before = signal.signal(signal.SIGINT, flag.catch)
    try:
        yield flag
    finally:
        signal.signal(signal.SIGINT, before)


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
        self._progress = Progress(*columns, console=notes, disable=quiet)

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *error: object) -> None:
        if self._progress.tasks:
            self._progress.stop()

    def observer(self, label: str, rounds: int | None) -> Any:
        """A callback that advances the bar of one run after each round."""
        self._progress.start()
        task = self._progress.add_task(label, total=rounds, score="")

        def observe(record: Record) -> None:
            scores = [
                f"{k} {v:.3f}"
                for k, v in record.metrics.items()
                if isinstance(v, float)
            ]
            self._progress.update(task, completed=record.index + 1)
            if scores:
                self._progress.update(task, score="  ".join(scores))

        return observe

    def counter(self, label: str, total: int) -> Any:
        """A callback that advances a new bar by one."""
        task = self._progress.add_task(label, total=total, score="")
        return lambda: self._progress.advance(task)


def print_json(document: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print one JSON document; NaN and infinite numbers become null."""
    print(jsonlib.dumps(_plain(document)))


def _plain(value: object) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str | int | float | bool | None):
        return value
    return str(value)
