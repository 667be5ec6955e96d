"""Work on a Ray cluster: the same pieces as in one process, done by worker processes on any number
of machines.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from poise.backends.local import Local, LocalWorkers
from poise.core.algorithm_state import AlgorithmState
from poise.core.allocator import keep_freed_memory
from poise.core.arrivals import Arrivals
from poise.core.errors import InvalidOption, require
from poise.core.parts import part
from poise.core.protocols import Owners, WorkOrder
from poise.core.vectors import Stack, Vector
from poise.engine.client_batches import ClientBatch, Gathered, client_batches
from poise.engine.local_work import LocalWork

if TYPE_CHECKING:
    from ray import ObjectRef
    from ray.actor import ActorHandle

# How a cluster that is started here behaves: it tells nobody, and its workers count as much as
# other processes do. At
# Ray's own niceness of 15 they stand still for minutes on a machine that has other work.
OURS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}


@part("backend", "ray")
class Ray:
    """Simulate on a cluster that Ray runs.

    The federation and the task are put into Ray's object store once, a model once per version;
    every worker takes pieces of work as it becomes free. Pieces are cut as `Local` cuts them, so
    the result is the same to the bit. A worker that dies is started again and its piece done again:
    work depends on its address only, never on who did it.

    Args:
        workers: worker processes; None for one per CPU of the cluster.
        address: of a running cluster (``"auto"`` finds one on this machine); None starts one here,
            for this run.
    """

    workers: int | None = None
    address: str | None = None

    @property
    def device(self) -> str:
        """Workers compute on CPUs."""
        return "cpu"

    def __post_init__(self) -> None:
        require(
            self.workers is None or self.workers >= 1,
            f"Ray: workers must be at least 1, not {self.workers}",
        )

    def open(self, local: LocalWork, clients: Owners, seed: int) -> RayWorkers:
        """Join the cluster, or start one, and start the workers."""
        ray = _ray()
        began = not ray.is_initialized()
        if began:
            _join(ray, self.address, self.workers)
        count = self.workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        return RayWorkers(local, clients, seed, count, began)


def _ray() -> ModuleType:
    try:
        import ray
    except ImportError as error:
        raise InvalidOption("the backend 'ray' needs Ray", "pip install 'poise[ray]'") from error
    found: ModuleType = ray
    return found


def _join(ray: ModuleType, address: str | None, workers: int | None) -> None:
    for name, value in OURS.items():
        os.environ.setdefault(name, value)
    given = {"address": address} if address else {"num_cpus": workers, "include_dashboard": False}
    try:
        ray.init(log_to_driver=False, logging_level="error", namespace="poise", **given)
    except (ConnectionError, RuntimeError, ValueError) as error:
        where = address or "this machine"
        raise InvalidOption(
            f"Ray: no cluster at {where}: {error}", "start one: ray start --head"
        ) from error


class _Hand:
    """What a worker process runs: it holds the task on the federation, and does pieces of work."""

    def __init__(self, local: LocalWork) -> None:
        torch.set_num_threads(1)
        keep_freed_memory()
        self.local = local

    def work(
        self,
        batch: ClientBatch,
        versions: Sequence[int],
        reports: frozenset[str],
        algorithm_state: AlgorithmState,
        *models: Any,
    ) -> Arrivals:
        """Do the work of one batch; ``models`` are those of ``versions``."""
        torch.set_num_threads(1)
        found = {v: torch.from_numpy(m) for v, m in zip(versions, models, strict=True)}
        return batch.work(self.local, found, reports, algorithm_state)

    def where(self) -> str:
        """The node it runs on."""
        return str(_ray().get_runtime_context().get_node_id())


@dataclass
class RayWorkers:
    """Running worker processes."""

    local: LocalWork
    clients: Owners
    seed: int
    workers: int
    began: bool = False
    _hands: list[Any] = field(default_factory=list, repr=False)
    _held: Any = field(default=None, repr=False)  # a worker that is started again needs it
    _here: LocalWorkers = field(init=False, repr=False)
    _models: dict[int, tuple[Vector, Any]] = field(default_factory=dict, repr=False)

    real_time = False

    def __post_init__(self) -> None:
        ray = _ray()
        self._here = Local().open(self.local, self.clients, self.seed)
        self._held = ray.put(self.local)
        mode = {
            "MKL_CBWR": os.environ.get("MKL_CBWR", "AVX2")
        }  # the same code path in every process: the same bits
        options = {
            "num_cpus": 1,
            "max_restarts": -1,
            "max_task_retries": -1,
            "runtime_env": {"env_vars": mode},
        }
        make = ray.remote(**options)(_Hand)
        self._hands = [make.remote(self._held) for _ in range(self.workers)]

    def work(self, order: WorkOrder, spare: Stack | None = None) -> Arrivals:
        """Do these pieces of work, each from the model version it names."""
        batches = client_batches(self.local, self.clients.sizes, self.seed, order.assignments)
        gathered = Gathered.of(self.local, batches, order, spare)
        put = self._put(order.models)

        def hand_over(hand: ActorHandle[_Hand], batch: ClientBatch) -> Any:
            versions = sorted({int(v) for v in batch.versions})
            mine = _of_clients(order.algorithm_state, batch)
            return hand.work.remote(
                batch, versions, order.reports, mine, *(put[v] for v in versions)
            )

        done = self._each(hand_over, batches)
        for batch, arrivals in zip(batches, done, strict=True):
            gathered.put(batch, arrivals)
        return gathered.joined(done)

    def map_workers(self, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """Map over threads of the machine of the server."""
        return self._here.map_workers(function, items)

    def _put(self, models: Mapping[int, Vector]) -> dict[int, Any]:
        """References to models in the object store; a version is put there once, and let go with
        its last assignment.
        """
        ray = _ray()
        held = {
            v: found for v, found in self._models.items() if v in models and found[0] is models[v]
        }
        self._models = {v: held.get(v) or (m, ray.put(m.numpy())) for v, m in models.items()}
        return {v: reference for v, (_, reference) in self._models.items()}

    def _each(self, hand_over: Callable[[Any, Any], Any], items: Iterable[Any]) -> list[Any]:
        """Give every item to the next hand that is free; results in order."""
        ray = _ray()
        todo, free = list(enumerate(items)), list(self._hands)
        results: list[Any] = [None] * len(todo)
        running: dict[Any, tuple[int, Any]] = {}
        todo.reverse()
        while todo or running:
            while todo and free:
                k, item = todo.pop()
                hand = free.pop()
                running[hand_over(hand, item)] = (k, hand)
            ready, _ = ray.wait(list(running), num_returns=1)
            k, hand = running.pop(ready[0])
            results[k] = _fetched(ray, ready[0])
            free.append(hand)
        return results

    def measure(
        self, theta: Vector, names: frozenset[str], algorithm_state: AlgorithmState
    ) -> dict[str, Any]:
        """Metrics of a model, measured on the machine of the server: held-out data are its own."""
        return self._here.measure(theta, names, algorithm_state)

    def close(self) -> None:
        """Stop the workers, and the cluster where it was started for this run."""
        ray = _ray()
        self._here.close()
        for hand in self._hands:
            ray.kill(hand)
        self._hands, self._held, self._models = [], None, {}
        if self.began:
            ray.shutdown()


def _fetched(ray: ModuleType, reference: ObjectRef[Any]) -> Any:
    """The result of a piece; an error of the work itself is raised as it was there."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error


def _of_clients(algorithm_state: AlgorithmState, batch: ClientBatch) -> AlgorithmState:
    """What a batch needs to remember: its versions and its clients, nobody else's."""
    clients, versions = {int(c) for c in batch.clients}, {int(v) for v in batch.versions}
    return replace(
        algorithm_state,
        sent={v: named for v, named in algorithm_state.sent.items() if v in versions},
        client_state={
            c: named for c, named in algorithm_state.client_state.items() if c in clients
        },
    )
