"""Work in this process, on one thread per core."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

import torch

from poise.core.algorithm_state import AlgorithmState, PersonalModels
from poise.core.allocator import keep_freed_memory
from poise.core.arrivals import Arrivals
from poise.core.errors import require
from poise.core.parts import part
from poise.core.protocols import Owners, WorkOrder
from poise.core.threads import one_thread
from poise.core.vectors import Stack, Vector
from poise.engine.client_batches import ClientBatch, Gathered, client_batches
from poise.engine.local_work import LocalWork


@part("backend", "local")
class Local:
    """Simulate in this process.

    The cohort is cut into chunks of clients; workers (the calling thread and others) take one chunk
    each, with one thread inside PyTorch, so that results do not depend on the number of workers.

    Args:
        workers: threads at work, the calling one among them; None for one per core that this
            process may use.
        device: where models and gradients live, e.g. ``"cpu"`` or ``"cuda:0"``.
    """

    workers: int | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        require(
            self.workers is None or self.workers >= 1,
            f"Local: workers must be at least 1, not {self.workers}",
        )

    def open(self, local: LocalWork, clients: Owners, seed: int) -> LocalWorkers:
        """Start the workers for a federation with these client sizes."""
        keep_freed_memory()
        cores = (
            len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count() or 1
        )
        workers = self.workers or (cores if self.device == "cpu" else 1)
        return LocalWorkers(local, clients, seed, workers)


@dataclass
class LocalWorkers:
    """The workers of a run: the calling thread, and a pool of others."""

    local: LocalWork
    clients: Owners
    seed: int
    workers: int
    _pool: ThreadPoolExecutor = field(init=False, repr=False)

    real_time = False

    def __post_init__(self) -> None:
        self._pool = ThreadPoolExecutor(max(1, self.workers - 1), "poise")

    def work(self, order: WorkOrder, spare: Stack | None = None) -> Arrivals:
        """Do these pieces of work, each from the model version it names."""
        batches = client_batches(self.local, self.clients.sizes, self.seed, order.assignments)
        gathered = Gathered.of(self.local, batches, order, spare)

        def do(batch: ClientBatch) -> Arrivals:
            place = gathered.place(batch)
            done = batch.work(self.local, order.models, order.reports, order.algorithm_state, place)
            if place is None:
                gathered.put(batch, done)
            return done

        return gathered.joined(self.map_workers(do, batches))

    def measure(
        self, theta: Vector, names: frozenset[str], algorithm_state: AlgorithmState
    ) -> dict[str, Any]:
        """Metrics of a model; with personal layers, of each client's own version of it."""
        oracle, personal = self.local.oracle, self.local.wire.personal
        if personal is None:
            return oracle.measure(theta, names, self.map_workers)
        return oracle.measure(
            theta, names, self.map_workers, PersonalModels(personal, algorithm_state)
        )

    def map_workers(self, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """Map over the workers, of which the calling thread is one; results in order.

        Where an item fails, those after it are let be and its error is raised: the first one's, in
        the items' order.
        """
        todo = list(items)
        found: list[Any] = [None] * len(todo)
        failed: dict[int, Exception] = {}
        queue = iter(range(len(todo)))

        def take() -> None:
            for k in queue:
                torch.set_num_threads(
                    1
                )  # each time: PyTorch forgets a thread's setting when another changes its own
                try:
                    found[k] = function(todo[k])
                except Exception as error:
                    failed[k] = error
                if failed:
                    return

        with (
            one_thread(),
            torch.autocast("cpu", enabled=False),
        ):  # helpers know nothing of the caller's modes
            helping = [self._pool.submit(take) for _ in range(min(self.workers, len(todo)) - 1)]
            try:
                take()
            finally:  # also where somebody interrupts: nobody goes on behind the caller's back
                deque(queue, maxlen=0)
                wait([helper for helper in helping if not helper.cancel()])
        try:
            if failed:
                raise failed[min(failed)]
        finally:
            failed.clear()  # an error holds on to this frame, and with it to all updates
        return found

    def close(self) -> None:
        """Stop the workers."""
        self._pool.shutdown(wait=True, cancel_futures=True)
