"""A callback that exports rounds while a run goes on."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from poise.core.types import Record
from poise.exports.scalars import Sink, scalars
from poise.ledger.run import Run, open_run

# times as long as an export took pass before the next: at most a tenth of a run, however long its
# ledger
REST = 9.0


class Live:
    """A callback for ``poise.train(out=path, callbacks=[…])`` that hands new rounds to sinks, read
    from the ledger.

    Callbacks are called after a round is in the ledger; what is exported is what was kept there,
    not what the process has in memory. Reading a ledger takes the longer the more rounds it has; so
    rounds are passed on at once or, where that would take more than a tenth of the time, some at a
    time. Use it in a ``with`` block, which passes on what is left and closes the sinks.

    Args:
        path: the run folder, the ``out`` of the run.
        sinks: where to, e.g. `TensorBoard("board/first")`.
    """

    def __init__(self, path: str | Path, *sinks: Sink) -> None:
        self.path, self.sinks = Path(path), sinks
        self._written: dict[
            int, int
        ] = {}  # by the number of a sink that was made ready: rounds that it has
        self._failed: set[int] = set()  # sinks that are not written to any more, only closed
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
            for k, sink in enumerate(self.sinks):
                if k not in self._failed:
                    self._pass_on(run, k, sink)
        finally:
            run.close()

    def _pass_on(self, run: Run, k: int, sink: Sink) -> None:
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
            self._end()

    def _end(self) -> None:
        """Close all sinks that were made ready, each whatever becomes of the others."""
        run = open_run(self.path)
        with ExitStack() as closing:
            closing.callback(run.close)
            for k in self._written:
                closing.callback(self.sinks[k].end, run)
