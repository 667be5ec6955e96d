"""The backend ``local``: local work in this process, on one thread per core."""

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
from poise.core.local_models import LocalModel, no_local_model
from poise.core.parts import part
from poise.core.protocols import Owners, WorkOrder
from poise.core.threads import one_thread
from poise.core.vectors import Stack, Vector
from poise.engine.client_batches import ClientBatch, Gathered, client_batches
from poise.engine.local_work import LocalWork


@part("backend", "local")
class Local:
    """Simulate in this process.

    The backend splits the cohort into batches of clients. Each worker (the calling
    thread or a thread of the pool) takes one batch at a time and uses one PyTorch
    thread, so results do not depend on the number of workers.

    Args:
        workers: number of threads, including the calling one; None for one per core
            that this process may use.
        device: the device of models and gradients, e.g. ``"cpu"`` or ``"cuda:0"``.
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
        workers = self.workers or _default_workers(self.device)
        return LocalWorkers(local, clients, seed=seed, workers=workers)


def _default_workers(device: str) -> int:
    """One worker per core that this process may use; one worker for other devices."""
    if device != "cpu":
        return 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass
class LocalWorkers:
    """The workers of a run: the calling thread and a thread pool."""

    local: LocalWork
    clients: Owners
    seed: int
    workers: int
    _pool: ThreadPoolExecutor = field(init=False, repr=False)

    real_time = False
    real_nodes = False

    def __post_init__(self) -> None:
        self._pool = ThreadPoolExecutor(max(1, self.workers - 1), "poise")

    def work(self, order: WorkOrder, spare: Stack | None = None) -> Arrivals:
        """Do the work of all assignments, each from the model version that it names."""
        batches = client_batches(
            self.local, self.clients.sizes, self.seed, order.assignments
        )
        gathered = Gathered.of(self.local, batches, order, spare)

        def do(batch: ClientBatch) -> Arrivals:
            place = gathered.place(batch)
            arrivals = batch.work(
                self.local, order.models, order.reports, order.algorithm_state, place
            )
            if place is None:
                gathered.put(batch, arrivals)
            gathered.finish(batch)
            return arrivals

        return gathered.joined(self.map_workers(do, batches))

    def measure(
        self,
        theta: Vector,
        names: frozenset[str],
        algorithm_state: AlgorithmState,
        local: LocalModel = no_local_model,
    ) -> dict[str, Any]:
        """Metrics of a model; with personal layers, of each client's own model."""
        oracle = self.local.oracle
        personal = self.local.wire.personal
        if personal is None:
            return oracle.measure(theta, names, self.map_workers, local=local)
        versions = PersonalModels(personal, algorithm_state)

        def own(client: int) -> Vector | None:
            model = local(client)
            return None if model is None else versions(model, client)

        return oracle.measure(theta, names, self.map_workers, versions, own)

    def map_workers(
        self, function: Callable[[Any], Any], items: Iterable[Any]
    ) -> list[Any]:
        """Map over the workers, including the calling thread; results are in order.

        After an error, workers take no further items. If several items fail, the error
        of the first in order is raised.
        """
        todo = list(items)
        results: list[Any] = [None] * len(todo)
        errors: dict[int, Exception] = {}
        queue = iter(range(len(todo)))

        def take() -> None:
            for k in queue:
                # every time: PyTorch resets a thread's setting when another thread
                # changes its own
                torch.set_num_threads(1)
                try:
                    results[k] = function(todo[k])
                except Exception as error:
                    errors[k] = error
                if errors:
                    return

        # pool threads do not see the caller's autocast mode, so it is off in all
        with one_thread(), torch.autocast("cpu", enabled=False):
            helpers = [
                self._pool.submit(take) for _ in range(min(self.workers, len(todo)) - 1)
            ]
            try:
                take()
            finally:  # also after an interrupt: no helper continues in the background
                deque(queue, maxlen=0)
                working = [helper for helper in helpers if not helper.cancel()]
                if working:
                    wait(working)
        try:
            if errors:
                raise errors[min(errors)]
        finally:
            errors.clear()  # an error references this frame, and thereby all updates
        return results

    def close(self) -> None:
        """Stop the workers."""
        self._pool.shutdown(wait=True, cancel_futures=True)
