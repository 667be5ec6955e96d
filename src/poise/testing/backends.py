"""The contract of backends."""

from __future__ import annotations

import numpy as np
import torch

from poise.core.algorithm_state import AlgorithmState
from poise.core.arrivals import UPDATE, Arrivals
from poise.core.protocols import Backend, WorkOrder
from poise.core.rng import keys
from poise.core.types import Assignment
from poise.engine.local_work import BackendPart, LocalWork, WorkGroup
from poise.solvers import SGD
from poise.tasks import Task
from poise.testing.clauses import SIZES, holds
from poise.testing.federations import SampleFederation

REPORTS = frozenset({"loss_before", "loss_after"})
REPORTED = ("samples", "steps", "loss_before", "loss_after")


def check_backend(backend: BackendPart, *, seed: int = 3) -> None:
    """Check the contract of backends: the result of plain `LocalWork` for each client.

    Clauses: rows come in the order of the assignments, each from its version; a second
    occurrence of a client has other batches; reports come exactly if they are
    requested; replay is identical; models are not modified; metrics are those of the
    oracle.
    """
    federation = SampleFederation.random(SIZES, seed=seed)
    solver = SGD(lr=0.1, epochs=2, batch_size=4, momentum=0.5)
    for path in (None, "rows"):
        task = Task("mlp", {"hidden": 4}, dtype="float64", path=path)
        oracle = task.bind(federation)
        local = LocalWork.plain(oracle, solver)
        workers = backend.open(local, federation, seed)
        try:
            _same_as_local_work(backend, workers, local, seed)
            theta = oracle.initial(seed)
            names = oracle.metrics
            measured = workers.measure(theta, names, AlgorithmState())
            plain = oracle.measure(theta, names, lambda f, xs: [f(x) for x in xs])
            holds(
                measured.keys() == plain.keys(),
                backend,
                "metrics are those asked for",
                sorted(measured),
            )
            same = all(np.allclose(measured[k], plain[k], rtol=1e-12) for k in plain)
            holds(same, backend, "metrics are the oracle's", (measured, plain))
        finally:
            workers.close()


def _same_as_local_work(
    backend: BackendPart, workers: Backend, local: LocalWork, seed: int
) -> None:
    models = {v: local.oracle.initial(v) for v in (0, 2)}
    held = {v: m.clone() for v, m in models.items()}
    pieces = [
        (3, 2, 0),
        (0, 0, 0),
        (5, 2, 0),
        (1, 2, 0),
        (0, 0, 1),
        (7, 0, 0),
        (1, 0, 0),
    ]
    assignments = [
        Assignment(1.0, client, version, occurrence)
        for client, version, occurrence in pieces
    ]
    done = workers.work(WorkOrder(assignments, models, REPORTS, AlgorithmState()))
    updates = done.payload[UPDATE]
    _complete(backend, done, len(assignments))
    for row, f in enumerate(assignments):
        stream = keys(seed, "work", f.version, f.client, f.occurrence)
        alone = local.run(
            models[f.version][None],
            WorkGroup(np.array([f.client]), f.version, stream, REPORTS),
        )
        gap = float((alone.payload[UPDATE][0] - updates[row]).abs().max())
        holds(
            gap < 1e-12,
            backend,
            "the same as local work, row by row",
            f"row {row}, {f}: {gap}",
        )
        for name in REPORTED:
            same = np.isclose(vars(alone)[name][0], vars(done)[name][row], rtol=1e-10)
            holds(same, backend, f"the same {name} as local work", f"row {row}, {f}")
    holds(
        not torch.equal(updates[1], updates[4]),
        backend,
        "a second occurrence has its own batches",
    )
    again = workers.work(WorkOrder(assignments, models, frozenset(), AlgorithmState()))
    holds(torch.equal(again.payload[UPDATE], updates), backend, "replay is identical")
    holds(
        again.loss_before is None and again.loss_after is None,
        backend,
        "no report that was not asked for",
    )
    holds(
        all(torch.equal(models[v], held[v]) for v in models),
        backend,
        "models are not modified",
    )


def _complete(backend: BackendPart, done: Arrivals, m: int) -> None:
    for name in REPORTED:
        value = vars(done)[name]
        holds(
            value is not None and np.shape(value) == (m,),
            backend,
            "one report per piece of work",
            name,
        )
