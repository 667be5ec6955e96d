"""What the command line shows while it works."""

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

INTERRUPTED = 130  # the exit code of a program that Ctrl-C ended

console = Console()
notes = Console(stderr=True)  # progress and remarks never mix with results


def remark(text: str) -> None:
    """A line on stderr, as it is: never cut at the width of the terminal, brackets and all."""
    notes.print(text, markup=False, highlight=False, soft_wrap=True)


class StopFlag:
    """True once the user pressed Ctrl-C; a second Ctrl-C ends the process at once, which a ledger
    survives.
    """

    def __init__(self, json: bool) -> None:
        self.raised = False
        self._json = json

    def __call__(self) -> bool:
        """Whether to stop."""
        return self.raised

    def catch(self, number: int, frame: FrameType | None) -> None:
        """The signal handler."""
        if self.raised:
            notes.show_cursor()
            remark("stopped; every finished round is kept")
            if self._json:
                print_json({"error": "stopped", "hint": "every finished round is kept"})
            sys.stdout.flush()
            os._exit(INTERRUPTED)  # workers in the middle of a round would be waited for otherwise
        self.raised = True
        remark("stopping at the end of this round (Ctrl-C again stops at once)")


@contextmanager
def stoppable(json: bool) -> Iterator[StopFlag]:
    """Turn Ctrl-C into a flag for the time of the block."""
    flag = StopFlag(json)
    before = signal.signal(signal.SIGINT, flag.catch)
    try:
        yield flag
    finally:
        signal.signal(signal.SIGINT, before)


class Bar:
    """A progress bar with the newest metrics and the time that is left."""

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

    def __exit__(self, *what: object) -> None:
        if self._progress.tasks:
            self._progress.stop()

    def observer(self, label: str, rounds: int | None) -> Any:
        """A callback that moves the bar of one run."""
        self._progress.start()
        task = self._progress.add_task(label, total=rounds, score="")

        def observe(record: Record) -> None:
            scores = [f"{k} {v:.3f}" for k, v in record.metrics.items() if isinstance(v, float)]
            self._progress.update(task, completed=record.index + 1)
            if scores:
                self._progress.update(task, score="  ".join(scores))

        return observe

    def counter(self, label: str, total: int) -> Any:
        """A callback that moves a bar by one."""
        task = self._progress.add_task(label, total=total, score="")
        return lambda: self._progress.advance(task)


def print_json(document: Mapping[str, Any] | Sequence[Any]) -> None:
    """One JSON document; numbers that JSON does not have become null."""
    print(jsonlib.dumps(_plain(document)))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool | None) else str(value)
