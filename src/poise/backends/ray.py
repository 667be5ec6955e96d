"""The backend ``ray``: local work on a Ray cluster, on any number of machines."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from poise.backends.local import Local, LocalWorkers
from poise.backends.own_code import local_packages
from poise.core.algorithm_state import AlgorithmState
from poise.core.allocator import keep_freed_memory
from poise.core.arrivals import Arrivals
from poise.core.errors import InvalidOption, require
from poise.core.local_models import LocalModel, no_local_model
from poise.core.parts import part
from poise.core.protocols import Owners, WorkOrder
from poise.core.vectors import Stack, Vector
from poise.engine.client_batches import ClientBatch, Gathered, client_batches
from poise.engine.local_work import LocalWork

if TYPE_CHECKING:
    from ray import ObjectRef
    from ray.actor import ActorHandle

# Settings of a cluster that poise starts: no usage statistics, and workers with normal
# priority. At Ray's own niceness of 15, workers stand still for minutes on a busy
# machine.
OURS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}


@part("backend", "ray")
class Ray:
    """Simulate on a Ray cluster.

    The backend stores the federation and the task once in Ray's object store, and each
    model version once; a free worker takes the next batch of clients. Batches are those
    of `Local`, so the results are bit-identical. If a worker dies, Ray restarts it and
    repeats its batch: work depends on its address only, not on the worker. Users' models,
    losses and solvers travel with the task if their package is not installed; installed
    packages must be installed on all machines.

    Args:
        workers: number of worker processes; None for one per CPU of the cluster.
        address: address of a running cluster (``"auto"`` finds one on this machine);
            None starts a cluster here, for this run.
    """

    workers: int | None = None
    address: str | None = None

    @property
    def device(self) -> str:
        """The device of the workers."""
        return "cpu"

    def __post_init__(self) -> None:
        require(
            self.workers is None or self.workers >= 1,
            f"Ray: workers must be at least 1, not {self.workers}",
        )

    def open(self, local: LocalWork, clients: Owners, seed: int) -> RayWorkers:
        """Join the cluster, or start one, and start the workers."""
        ray = _ray()
        joined_here = not ray.is_initialized()
        if joined_here:
            _join(ray, self.address, self.workers)
        workers = self.workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        return RayWorkers(
            local, clients, seed=seed, workers=workers, joined_here=joined_here
        )


def _ray() -> ModuleType:
    try:
        import ray
    except ImportError as error:
        raise InvalidOption(
            "the backend 'ray' needs Ray", "pip install 'poise[ray]'"
        ) from error
    module: ModuleType = ray
    return module


def _join(ray: ModuleType, address: str | None, workers: int | None) -> None:
    for name, value in OURS.items():
        os.environ.setdefault(name, value)
    options: dict[str, Any] = {"num_cpus": workers, "include_dashboard": False}
    if address:
        options = {"address": address}
    try:
        ray.init(
            log_to_driver=False, logging_level="error", namespace="poise", **options
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        where = address or "this machine"
        raise InvalidOption(
            f"Ray: no cluster at {where}: {error}", "start one: ray start --head"
        ) from error


class _Worker:
    """A worker process: holds the task and the federation, does batches of work."""

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
        """Do the work of one batch; ``models`` correspond to ``versions``."""
        torch.set_num_threads(1)
        by_version = {
            v: torch.from_numpy(m) for v, m in zip(versions, models, strict=True)
        }
        return batch.work(self.local, by_version, reports, algorithm_state)

    def where(self) -> str:
        """The id of the Ray node that this worker runs on."""
        return str(_ray().get_runtime_context().get_node_id())


@dataclass
class RayWorkers:
    """Running worker processes."""

    local: LocalWork
    clients: Owners
    seed: int
    workers: int
    joined_here: bool = False  # whether `close` leaves the cluster
    _actors: list[Any] = field(default_factory=list, repr=False)
    # a restarted worker reads it again
    _stored_work: Any = field(default=None, repr=False)
    _on_server: LocalWorkers = field(init=False, repr=False)
    _models: dict[int, tuple[Vector, Any]] = field(default_factory=dict, repr=False)

    real_time = False
    real_nodes = False

    def __post_init__(self) -> None:
        ray = _ray()
        for package in local_packages(self.local):
            ray.cloudpickle.register_pickle_by_value(package)
        self._on_server = Local().open(self.local, self.clients, self.seed)
        self._stored_work = ray.put(self.local)
        # the same code path of MKL in every process gives the same bits
        variables = {"MKL_CBWR": os.environ.get("MKL_CBWR", "AVX2")}
        options = {
            "num_cpus": 1,
            "max_restarts": -1,
            "max_task_retries": -1,
            "runtime_env": {"env_vars": variables},
        }
        actor_class = ray.remote(**options)(_Worker)
        self._actors = [
            actor_class.remote(self._stored_work) for _ in range(self.workers)
        ]

    def work(self, order: WorkOrder, spare: Stack | None = None) -> Arrivals:
        """Do the work of all assignments, each from the model version that it names."""
        batches = client_batches(
            self.local, self.clients.sizes, self.seed, order.assignments
        )
        gathered = Gathered.of(self.local, batches, order, spare)
        stored = self._store_models(order.models)

        def submit(actor: ActorHandle[_Worker], batch: ClientBatch) -> Any:
            versions = sorted({int(v) for v in batch.versions})
            state = _state_for(batch, order.algorithm_state)
            models = [stored[v] for v in versions]
            return actor.work.remote(batch, versions, order.reports, state, *models)

        results = self._map_actors(submit, batches)
        for batch, arrivals in zip(batches, results, strict=True):
            gathered.put(batch, arrivals)
        return gathered.joined(results)

    def map_workers(
        self, function: Callable[[Any], Any], items: Iterable[Any]
    ) -> list[Any]:
        """Map over threads of the server's machine."""
        return self._on_server.map_workers(function, items)

    def _store_models(self, models: Mapping[int, Vector]) -> dict[int, Any]:
        """References to models in the object store, one per version while in use."""
        ray = _ray()
        stored: dict[int, tuple[Vector, Any]] = {}
        for version, model in models.items():
            known = self._models.get(version)
            if known is not None and known[0] is model:
                stored[version] = known
            else:
                stored[version] = (model, ray.put(model.numpy()))
        self._models = stored
        return {version: reference for version, (_, reference) in stored.items()}

    def _map_actors(
        self, submit: Callable[[Any, Any], Any], items: Iterable[Any]
    ) -> list[Any]:
        """Submit every item to the next free worker; results are in order."""
        ray = _ray()
        todo = list(enumerate(items))
        free = list(self._actors)
        results: list[Any] = [None] * len(todo)
        running: dict[Any, tuple[int, Any]] = {}
        todo.reverse()
        while todo or running:
            while todo and free:
                k, item = todo.pop()
                actor = free.pop()
                running[submit(actor, item)] = (k, actor)
            ready, _ = ray.wait(list(running), num_returns=1)
            k, actor = running.pop(ready[0])
            results[k] = _fetch(ray, ready[0])
            free.append(actor)
        return results

    def measure(
        self,
        theta: Vector,
        names: frozenset[str],
        algorithm_state: AlgorithmState,
        local: LocalModel = no_local_model,
    ) -> dict[str, Any]:
        """Metrics of a model, measured on the server, which holds the data."""
        return self._on_server.measure(theta, names, algorithm_state, local)

    def close(self) -> None:
        """Stop the workers, and leave the cluster if this run joined or started it."""
        ray = _ray()
        self._on_server.close()
        for actor in self._actors:
            ray.kill(actor)
        self._actors = []
        self._stored_work = None
        self._models = {}
        if self.joined_here:
            ray.shutdown()


def _fetch(ray: ModuleType, reference: ObjectRef[Any]) -> Any:
    """The result of a batch; raises the error of the work itself, not Ray's wrapper."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error


def _state_for(batch: ClientBatch, algorithm_state: AlgorithmState) -> AlgorithmState:
    """The algorithm state of the versions and clients of a batch."""
    clients = {int(c) for c in batch.clients}
    versions = {int(v) for v in batch.versions}
    return replace(
        algorithm_state,
        sent={v: named for v, named in algorithm_state.sent.items() if v in versions},
        client_state={
            c: named
            for c, named in algorithm_state.client_state.items()
            if c in clients
        },
    )
