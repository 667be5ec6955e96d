"""Work in this process, on one thread per core."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from poise.core.errors import require
from poise.core.parts import part
from poise.core.protocols import Oracle, Solver
from poise.core.rng import keys
from poise.core.types import REPORTED, Flight, Ints, Updates
from poise.core.vectors import Stack, Vector
from poise.core.work import local_work


@part("backend", "local")
class Local:
    """Simulate in this process.

    The cohort is cut into chunks of clients; worker threads take one chunk each, with one thread
    inside PyTorch, so that results do not depend on the number of workers.

    Args:
        workers: worker threads; None for one per core that this process may use.
        device: where models and gradients live, e.g. ``"cpu"`` or ``"cuda:0"``.
    """

    workers: int | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        require(self.workers is None or self.workers >= 1, f"Local: workers must be at least 1, not {self.workers}")

    def open(self, oracle: Oracle, solver: Solver, sizes: Ints, seed: int) -> LocalWorkers:
        """Start the workers for a federation with these client sizes."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return LocalWorkers(oracle, solver, sizes, seed, self.workers or (cores if self.device == "cpu" else 1))


@dataclass
class LocalWorkers:
    """Running worker threads."""

    oracle: Oracle
    solver: Solver
    sizes: Ints
    seed: int
    workers: int
    _pool: ThreadPoolExecutor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        threads = torch.get_num_threads()
        ready = threading.Barrier(self.workers + 1)

        def settle() -> None:
            torch.set_num_threads(1)
            ready.wait()

        self._pool = ThreadPoolExecutor(self.workers, "poise")
        for _ in range(self.workers):
            self._pool.submit(settle)  # each waits for the others, so each thread gets one
        ready.wait()
        torch.set_num_threads(threads)  # the workers' setting is theirs alone

    def work(
        self,
        models: Mapping[int, Vector],
        flights: Sequence[Flight],
        reports: frozenset[str],
        spare: Stack | None = None,
    ) -> Updates:
        """Do these pieces of work, each from the model version it names."""
        clients, versions, occurrences = (
            np.array([getattr(f, name) for f in flights], dtype=np.int64)
            for name in ("client", "version", "occurrence")
        )
        streams = keys(self.seed, "work", versions, clients, occurrences)
        first = next(iter(models.values()))
        fits = spare is not None and spare.shape == (len(flights), len(first)) and spare.dtype == first.dtype
        deltas = spare if fits and spare is not None else first.new_empty((len(flights), len(first)))

        chunks = self._chunks(clients, versions)

        def do(rows: Ints) -> Updates:
            version = int(versions[rows[0]])
            start = models[version].expand(len(rows), -1)
            own = _contiguous(rows)
            place = deltas[rows[0] : rows[-1] + 1] if own else None
            done = local_work(self.oracle, self.solver, start, clients[rows], version, streams[rows], reports, place)
            if not own:
                deltas[torch.from_numpy(rows)] = done.deltas
            return done

        done = Updates.join(self.spread(do, chunks), deltas)
        back = np.argsort(np.concatenate(chunks))
        columns: dict[str, Any] = {name: None if (c := getattr(done, name)) is None else c[back] for name in REPORTED}
        return Updates(deltas, **columns)

    def _chunks(self, clients: Ints, versions: Ints) -> list[Ints]:
        """Rows that work together: one model version, similar numbers of local steps, most first."""
        steps = self.solver.steps_for(self.sizes[clients])
        order = np.lexsort((-steps, versions))
        size = self.oracle.rows(self.solver.batch_size)
        cuts = np.flatnonzero(np.diff(versions[order])) + 1
        return [run[a : a + size] for run in np.split(order, cuts) for a in range(0, len(run), size)]

    def measure(self, theta: Vector, names: frozenset[str]) -> dict[str, Any]:
        """Metrics of a model."""
        return self.oracle.measure(theta, names, self.spread)

    def spread(self, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """Map over the workers; results in order."""
        return list(self._pool.map(function, items))

    def close(self) -> None:
        """Stop the workers."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def _contiguous(rows: Ints) -> bool:
    return bool((np.diff(rows) == 1).all())
