"""Local work, written once.

``W <- W - rate * T(G(W), W)`` for a stack of clients, each on its own batches, each for its own number
of steps. One client is a stack of one row, so a simulation and a real node run this same function.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from poise.core.batches import Plan
from poise.core.memory import PERSONAL, Memories, Recall
from poise.core.protocols import Oracle, Rule, Solver
from poise.core.rng import U64
from poise.core.types import Ints, Updates
from poise.core.vectors import Stack


def local_work(
    oracle: Oracle,
    solver: Solver,
    start: Stack,
    clients: Ints,
    version: int,
    streams: U64,
    reports: frozenset[str] = frozenset(),
    out: Stack | None = None,
    memories: Memories | None = None,
    personal: torch.Tensor | None = None,
) -> Updates:
    """Let clients work from ``start`` (m, d) and return what they changed.

    Args:
        oracle: gives gradients and losses.
        solver: gives the step.
        start: the model each client received, one row per client; not changed.
        clients: client numbers, (m,), ordered by number of local steps, most first.
        version: the model version they received (it sets the learning rate).
        streams: one random stream per client.
        reports: which of ``loss_before``, ``loss_after`` to compute.
        out: where to write the changes, (m, d).
        memories: what server and clients remember, for solvers that have a memory.
        personal: positions of the model that stay with each client (FedBN); they are not part of the change.
    """
    data = oracle.open(clients, streams)
    moving = slice(0, oracle.layout.trainable)
    remembered = memories or Memories()
    if personal is not None:
        start = _with_own(start, clients, remembered, personal)
    rows = torch.empty_like(start) if out is None else out
    rows.copy_(start)
    before = oracle.losses(rows, data) if "loss_before" in reports else None

    rule = solver.rule(start[:, moving], version)
    recall = Recall.of(solver, remembered, clients.tolist(), version, start[:, moving])
    terms, point = recall.terms(start[:, moving]), recall.point() or rule.point
    rule = replace(rule, transforms=(*terms, *rule.transforms), point=point)
    steps = solver.steps_for(data.sizes)
    units = data.sizes if oracle.batches else np.ones_like(data.sizes)
    _walk(oracle, rule, rows, data, Plan.draw(streams, units, data.offsets[:-1], steps, solver.batch_size))

    after = oracle.losses(rows, data) if "loss_after" in reports else None
    kept = {} if personal is None else {PERSONAL: rows[:, personal]}
    rows.sub_(start)
    if personal is not None:
        rows[:, personal] = 0.0
    kept |= recall.after(rows[:, moving], steps, rule.rate)
    norms = torch.linalg.vector_norm(rows, dim=1).double().cpu().numpy()
    return Updates(rows, norms, np.asarray(data.sizes), steps, before, after, kept)


def _walk(oracle: Oracle, rule: Rule, rows: Stack, data: Any, plan: Plan) -> None:
    """All local steps, in place; a client stops after its own number of steps."""
    plain = not rule.transforms and rule.point is None
    descend = getattr(oracle, "descend", None)
    if plain and descend is not None:  # nothing stands between the gradient and the step: they are one pass
        descend(rows, data, plan, rule.rate)
        return
    trainable = oracle.layout.trainable
    scratch = torch.empty_like(rows[:, :trainable])
    for batch in plan:
        active = rows[: len(batch.counts)]
        weights, gradients = active[:, :trainable], scratch[: len(active)]
        at = active if rule.point is None else torch.cat([rule.point(weights), active[:, trainable:]], dim=1)
        oracle.gradients(at, data, batch, out=gradients)
        if at is not active:
            active[:, trainable:] = at[:, trainable:]
        for transform in rule.transforms:
            gradients = transform(gradients, weights)
        weights.sub_(gradients, alpha=rule.rate)


def _with_own(start: Stack, clients: Ints, memories: Memories, personal: torch.Tensor) -> Stack:
    """The models received, with each client's own values where it has some."""
    rows = start.clone()
    for k, client in enumerate(clients.tolist()):
        own = memories.own.get(client, {}).get(PERSONAL)
        if own is not None:
            rows[k, personal] = own.to(rows)
    return rows
