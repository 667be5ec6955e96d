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

from poise.core.progress_bars import Bar, notes

INTERRUPTED = 130  # exit code after Ctrl-C
SAVED = "the run is saved; `poise resume` continues it"

console = Console()


def remark(text: str) -> None:
    """Print a line to stderr verbatim: no markup, no wrapping at the terminal width."""
    notes.print(text, markup=False, highlight=False, soft_wrap=True)


class StopFlag:
    """A flag that Ctrl-C sets; a second Ctrl-C ends the process at once.

    Ending at once is safe: the ledger keeps the finished rounds, and a resumed run
    computes those of the last moment again.
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
            remark(f"stopped; {SAVED}")
            if self._json:
                print_json({"error": "stopped", "hint": SAVED})
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


__all__ = [
    "Bar",
    "StopFlag",
    "console",
    "notes",
    "print_json",
    "remark",
    "stoppable",
]
