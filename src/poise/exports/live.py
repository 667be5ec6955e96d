"""A callback that exports rounds while a run goes on."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType

from poise.core.types import Record
from poise.exports.scalars import Sink, scalars
from poise.ledger.run import open_run

REST = 9.0  # times as long as an export took pass before the next: at most a tenth of a run, however long its ledger


class Live:
    """A callback for ``poise.train(out=path, callbacks=[…])`` that hands new rounds to sinks, read from the ledger.

    Callbacks are called after a round is in the ledger; what is exported is what was kept there, not what the process
    has in memory. Reading a ledger takes the longer the more rounds it has; so rounds are passed on at once or, where
    that would take more than a tenth of the time, some at a time. Use it in a ``with`` block, which passes on what is
    left and closes the sinks.

    Args:
        path: the run folder, the ``out`` of the run.
        sinks: where to, e.g. `TensorBoard("board/first")`.
    """

    def __init__(self, path: str | Path, *sinks: Sink) -> None:
        self.path, self.sinks = Path(path), sinks
        self._written: int | None = None  # rounds that the sinks have; None before they were made ready
        self._next = 0.0  # not before this time

    def __call__(self, record: Record) -> None:
        """Export what the ledger has and the sinks have not, unless the last time was just now."""
        began = time.monotonic()
        if began >= self._next:
            self._export()
            ended = time.monotonic()
            self._next = ended + REST * (ended - began)

    def _export(self) -> None:
        run = open_run(self.path)
        try:
            for sink in self.sinks:
                if self._written is None:
                    sink.begin(run)
                sink.write(scalars(run, self._written or 0))
            self._written = run.rounds
        finally:
            run.close()

    def __enter__(self) -> Live:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._written is None:
            return
        self._export()
        run = open_run(self.path)
        try:
            for sink in self.sinks:
                sink.end(run)
        finally:
            run.close()
