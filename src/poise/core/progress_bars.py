"""Bars of progress on stderr, drawn by rich."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from poise.core.progress import scores_of

if TYPE_CHECKING:
    from poise.core.types import Record

notes = Console(stderr=True)
"""The console for progress and messages; results go to stdout."""


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
