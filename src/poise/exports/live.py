"""A callback that exports rounds during training."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from poise.core.types import Record
from poise.exports.scalars import Sink, scalars
from poise.results import Run, open_run

# The pause after an export, in multiples of its duration: exports take at most a tenth
# of the run
# time, however long the ledger.
REST = 9.0


class Live:
    """A callback that exports new rounds: ``poise.train(out=path, callbacks=[…])``.

    The callback reads the rounds from the ledger, not from memory. It exports each
    round once the ledger has flushed it (at most 0.2 seconds of rounds later), or in
    batches when exporting would take more than 10 % of the run time. Use it in a
    ``with`` block, which exports the remaining rounds and closes the sinks.

    Args:
        path: the run folder, the ``out`` of the run.
        sinks: the targets, e.g. `TensorBoard("board/first")`.
    """

    def __init__(self, path: str | Path, *sinks: Sink) -> None:
        self.path = Path(path)
        self.sinks = sinks
        self._written: dict[
            int, int
        ] = {}  # by index of an opened sink: number of its rounds
        self._failed: set[int] = set()  # sinks that get no more rounds, but are closed
        self._next_export = 0.0  # earliest time

    def __call__(self, record: Record) -> None:
        """Export new rounds from the ledger, unless the last export was just now."""
        start = time.monotonic()
        if start >= self._next_export:
            self._export()
            end = time.monotonic()
            self._next_export = end + REST * (end - start)

    def _export(self) -> None:
        run = open_run(self.path)
        try:
            for k, sink in enumerate(self.sinks):
                if k not in self._failed:
                    self._export_to(sink, k, run)
        finally:
            run.close()

    def _export_to(self, sink: Sink, k: int, run: Run) -> None:
        try:
            if k not in self._written:
                sink.begin(run)
            sink.write(scalars(run, self._written.get(k, 0)))
        except BaseException:
            self._failed.add(k)
            raise
        finally:
            self._written.setdefault(k, 0)
        self._written[k] = run.rounds

    def __enter__(self) -> Live:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._written:
            return
        try:
            self._export()
        finally:
            self._close_sinks()

    def _close_sinks(self) -> None:
        """Close all opened sinks, even if closing one of them fails."""
        run = open_run(self.path)
        with ExitStack() as closing:
            closing.callback(run.close)
            for k in self._written:
                closing.callback(self.sinks[k].end, run)
