"""The contract of backends."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from poise.core.rng import keys
from poise.core.types import Flight, Updates
from poise.core.work import local_work
from poise.solvers import SGD
from poise.tasks import Task
from poise.testing.clauses import SIZES, holds
from poise.testing.federations import SampleFederation

REPORTS = frozenset({"loss_before", "loss_after"})


def check_backend(backend: Any, *, seed: int = 3) -> None:
    """The contract of backends: the same result as plain `local_work`, client by client.

    Clauses: rows come in the order that was asked for, from the version that each names, a second occurrence of a
    client has its own batches, reports are given when asked for and only then, replay is identical, models are not
    modified, and metrics are the oracle's.
    """
    federation = SampleFederation.random(SIZES, seed=seed)
    solver = SGD(lr=0.1, epochs=2, batch_size=4, momentum=0.5)
    for path in (None, "rows"):
        task = Task("mlp", {"hidden": 4}, dtype="float64", path=path)
        oracle = task.bind(federation)
        workers = backend.open(oracle, solver, federation.sizes, seed)
        try:
            _same_as_local_work(backend, workers, oracle, solver, seed)
            theta, names = oracle.initial(seed), oracle.metrics
            found, plain = workers.measure(theta, names), oracle.measure(theta, names, lambda f, xs: [f(x) for x in xs])
            holds(found.keys() == plain.keys(), backend, "metrics are those asked for", sorted(found))
            same = all(np.allclose(found[k], plain[k], rtol=1e-12) for k in plain)
            holds(same, backend, "metrics are the oracle's", (found, plain))
        finally:
            workers.close()


def _same_as_local_work(backend: Any, workers: Any, oracle: Any, solver: Any, seed: int) -> None:
    models = {v: oracle.initial(v) for v in (0, 2)}
    held = {v: m.clone() for v, m in models.items()}
    who = [(3, 2, 0), (0, 0, 0), (5, 2, 0), (1, 2, 0), (0, 0, 1), (7, 0, 0), (1, 0, 0)]
    flights = [Flight(1.0, client, version, occurrence) for client, version, occurrence in who]
    done = workers.work(models, flights, REPORTS)
    _complete(backend, done, len(flights))
    for row, f in enumerate(flights):
        stream = keys(seed, "work", f.version, f.client, f.occurrence)
        alone = local_work(oracle, solver, models[f.version][None], np.array([f.client]), f.version, stream, REPORTS)
        gap = float((alone.deltas[0] - done.deltas[row]).abs().max())
        holds(gap < 1e-12, backend, "the same as local_work, row by row", f"row {row}, {f}: {gap}")
        for name in ("norms", "samples", "steps", "loss_before", "loss_after"):
            same = np.isclose(getattr(alone, name)[0], getattr(done, name)[row], rtol=1e-10)
            holds(same, backend, f"the same {name} as local_work", f"row {row}, {f}")
    holds(not torch.equal(done.deltas[1], done.deltas[4]), backend, "a second occurrence has its own batches")
    again = workers.work(models, flights, frozenset())
    holds(torch.equal(again.deltas, done.deltas), backend, "replay is identical")
    holds(again.loss_before is None and again.loss_after is None, backend, "no report that was not asked for")
    holds(all(torch.equal(models[v], held[v]) for v in models), backend, "models are not modified")


def _complete(backend: Any, done: Updates, m: int) -> None:
    for name in ("norms", "samples", "steps", "loss_before", "loss_after"):
        value = getattr(done, name)
        holds(value is not None and np.shape(value) == (m,), backend, "one report per piece of work", name)
