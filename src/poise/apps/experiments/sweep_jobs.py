"""Runs of a sweep: in this process one by one, or several at a time in processes.

Every draw of a run is addressed by its seed, so a run ends in the same bits in either
case. A process of its own per job also keeps the threads of two runs apart.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Literal

from poise.config.experiment import Experiment
from poise.core.errors import LedgerError, PoiseError, RunLocked
from poise.core.types import Record
from poise.ledger.store import begun, has_ledger
from poise.results import Run, open_run
from poise.training import begin, compose, resume

LOCK_PATIENCE = 10.0
"""Seconds to wait for the lock of a run whose killed process has not quite ended."""

NEWS_EVERY = 0.1
"""Seconds between two messages about the rounds of one run."""

Stop = Callable[[], bool]


@dataclass(frozen=True)
class RunOrder:
    """One run of a sweep, as a process can be told.

    Args:
        name: configuration and seed, for messages.
        tables: the tables of its experiment.
        file: the experiment file; relative paths of data begin at its folder.
        seed: the seed.
        folder: the run folder.
        until: stop after so many rounds; None for the end of the run.
    """

    name: str
    tables: dict[str, Any]
    file: str | None
    seed: int
    folder: str
    until: int | None = None


@dataclass(frozen=True)
class RunNews:
    """A message about a run of a sweep.

    Args:
        name: the run.
        kind: what happened.
        rounds: its recorded rounds.
        metrics: its newest metrics.
        text: the warning, or why the run failed; with a hint.
    """

    name: str
    kind: Literal["started", "round", "ended", "failed", "stopped", "warning"]
    rounds: int = 0
    metrics: dict[str, float] | None = None
    text: str = ""


Observe = Callable[[RunNews], None]


def advance(order: RunOrder, observe: Observe, stop: Stop) -> None:
    """Begin or resume a run, and take it to its end or to ``order.until`` rounds.

    A run that fails by its own doing is reported and stays failed: the sweep goes on.
    """
    counter = _Counter(order, observe)

    def enough() -> bool:
        reached = order.until is not None and counter.rounds >= order.until
        return reached or stop()

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_, **__: observe(
            RunNews(order.name, "warning", counter.rounds, text=str(message))
        )
        try:
            run = _begin_or_resume(order, counter, enough)
        except LedgerError:
            raise  # the disk, not the configuration
        except PoiseError as error:
            observe(RunNews(order.name, "failed", counter.rounds, text=str(error)))
            return
    rounds = run.rounds
    run.close()
    observe(RunNews(order.name, "ended", rounds))


class _Counter:
    """Counts the rounds of a run, and reports them a few times per second."""

    def __init__(self, order: RunOrder, observe: Observe) -> None:
        self._name = order.name
        self._observe = observe
        self._told = 0.0
        self.rounds = 0
        if has_ledger(Path(order.folder)):
            with closing(open_run(order.folder)) as run:
                self.rounds = run.rounds
        observe(RunNews(self._name, "started", self.rounds))

    def __call__(self, record: Record) -> None:
        """Take in one more round."""
        self.rounds = record.index + 1
        now = time.monotonic()
        if now - self._told >= NEWS_EVERY:
            self._told = now
            metrics = {k: v for k, v in record.metrics.items() if isinstance(v, float)}
            self._observe(RunNews(self._name, "round", self.rounds, metrics))


def _begin_or_resume(order: RunOrder, counter: _Counter, stop: Stop) -> Run:
    """Begin or resume a run; wait a moment for a process that is about to end."""
    folder = Path(order.folder)
    deadline = time.monotonic() + LOCK_PATIENCE
    while True:
        try:
            if begun(folder):
                return resume(folder, callbacks=[counter], stop=stop)
            file = None if order.file is None else Path(order.file)
            experiment = Experiment(order.tables, path=file)
            composition = compose(experiment, order.seed)
            with experiment.located():
                return begin(composition, folder, [counter], stop)
        except RunLocked:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


class Jobs:
    """Advances runs, ``jobs`` at a time; keeps its processes until it is closed."""

    def __init__(self, jobs: int, observe: Observe, stop: Stop) -> None:
        self._jobs = jobs
        self._observe = observe
        self._stop = stop
        self._news: queue.Queue[Any] = queue.Queue()
        self._workers: list[_JobProcess] = []
        self._waiting: deque[RunOrder] = deque()
        self._error: PoiseError | None = None

    def __enter__(self) -> Jobs:
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._workers:
            worker.close()

    def advance(self, orders: Sequence[RunOrder]) -> None:
        """Advance all runs; raise the first error that is no run's own."""
        if self._jobs > 1 and (len(orders) > 1 or self._workers):
            self._advance_in_processes(orders)
            return
        for order in orders:
            if self._stop():
                return
            advance(order, self._observe, self._stop)

    def _advance_in_processes(self, orders: Sequence[RunOrder]) -> None:
        """Hand orders to workers, and their messages to the observer."""
        self._waiting = deque(orders)
        for k in range(len(self._workers), min(self._jobs, len(orders))):
            self._workers.append(_JobProcess(k, self._jobs, self._news))
        for worker in self._workers:
            self._give_next(worker)
        asked = False
        while any(worker.order is not None for worker in self._workers):
            if not asked and (self._stop() or self._error is not None):
                asked = True
                self._waiting.clear()
                for worker in self._workers:
                    worker.stop()
            self._handle_one()
        if self._error is not None:
            raise self._error

    def _give_next(self, worker: _JobProcess) -> None:
        if self._waiting:
            worker.give(self._waiting.popleft())

    def _handle_one(self) -> None:
        """Handle the next message, if one comes soon."""
        try:
            worker, message = self._news.get(timeout=0.1)
        except queue.Empty:
            return
        if "news" in message:
            self._observe(RunNews(**message["news"]))
            return
        order = worker.order
        worker.order = None
        if not message and order is not None:
            self._fail(_ended_unexpectedly(worker, order))
        if "error" in message:
            self._fail(LedgerError(message["error"], message["hint"]))
        if message.get("ready") and self._error is None:
            self._give_next(worker)

    def _fail(self, error: PoiseError) -> None:
        self._error = self._error or error


class _JobProcess:
    """A process that advances one run at a time; it ends when this process ends."""

    def __init__(self, number: int, jobs: int, news: queue.Queue[Any]) -> None:
        self.order: RunOrder | None = None
        command = [sys.executable, "-m", "poise.apps.experiments.sweep_worker"]
        # its own session: Ctrl-C reaches this process only, which stops all workers
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(_search_path())},
            text=True,
        )
        self._send({"path": sys.path, "number": number, "jobs": jobs})
        self._reader = threading.Thread(target=self._read, args=(news,), daemon=True)
        self._reader.start()

    def _read(self, news: queue.Queue[Any]) -> None:
        """Put the worker's messages into the queue; an empty one when it has ended."""
        for line in _stream(self.process.stdout):
            news.put((self, json.loads(line)))
        news.put((self, {}))

    def _send(self, message: dict[str, Any]) -> None:
        stream = _stream(self.process.stdin)
        try:
            stream.write(json.dumps(message, default=str) + "\n")
            stream.flush()
        except BrokenPipeError:
            pass  # its end is reported by the reader

    def give(self, order: RunOrder) -> None:
        """Let the worker advance a run."""
        self.order = order
        self._send({"order": asdict(order)})

    def stop(self) -> None:
        """Ask the worker to stop after its round."""
        self._send({"stop": True})

    def close(self) -> None:
        """End the process; whatever it was doing can be resumed."""
        _stream(self.process.stdin).close()
        self.process.wait()
        self._reader.join()
        _stream(self.process.stdout).close()


def _stream(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def _search_path() -> list[str]:
    """Return the folders in which a worker finds poise and what this process finds."""
    return [folder for folder in sys.path if folder]


def _ended_unexpectedly(worker: _JobProcess, order: RunOrder) -> PoiseError:
    """Return the error for a worker that ended in the middle of a run."""
    code = worker.process.wait()
    how = f"with exit code {code}"
    if code < 0:
        how = f"by signal {-code}"
    return LedgerError(
        f"the process of {order.name} ended {how}",
        "repeat the command to continue; if the memory was full, use fewer --jobs",
    )


__all__ = ["Jobs", "RunNews", "RunOrder", "advance"]
