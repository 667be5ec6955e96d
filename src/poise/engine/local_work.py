"""Local work, written once.

``W <- W - rate * T(G(W), W)`` for a stack of clients, each on its own batches, each for its own
number of steps. One client is a stack of one row, so a simulation and a real node run this same
code.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol, cast

import numpy as np
import torch

from poise.core.algorithm_state import AlgorithmState, LocalState
from poise.core.arrivals import Arrivals
from poise.core.batches import BatchPlan
from poise.core.protocols import Backend, Descends, Oracle, Owners, Solver, StepRule
from poise.core.rng import U64
from poise.core.types import PERSONAL, Ints
from poise.core.vectors import Stack
from poise.engine.wire import Wire


@dataclass(frozen=True)
class WorkGroup:
    """A stack of clients that work together: who, from which version, with which random streams.

    Args:
        clients: client numbers, (m,), ordered by number of local steps, most first.
        version: the model version they received (it sets the learning rate).
        streams: one random stream per client, (m,).
        reports: which of ``loss_before``, ``loss_after`` to compute.
    """

    clients: Ints
    version: int
    streams: U64
    reports: frozenset[str] = frozenset()


@dataclass(frozen=True)
class LocalWork:
    """What every client of a run does with a model that it received.

    Args:
        oracle: gives gradients and losses.
        solver: gives the step.
        wire: says which entries stay with the client and how the rest travels.
    """

    oracle: Oracle
    solver: Solver
    wire: Wire

    @classmethod
    def plain(cls, oracle: Oracle, solver: Solver) -> LocalWork:
        """Work whose updates travel whole and as they are."""
        return cls(oracle, solver, Wire(oracle.layout))

    def run(
        self,
        start: Stack,
        group: WorkGroup,
        algorithm_state: AlgorithmState = AlgorithmState(),
        out: Stack | None = None,
    ) -> Arrivals:
        """Let clients work from ``start``, one row each, and return what they send.

        ``out`` is where the changes may be written, (m, d).
        """
        oracle, clients = self.oracle, group.clients
        data = oracle.open(clients, group.streams)
        start = self._with_personal(start, clients, algorithm_state)
        rows = torch.empty_like(start) if out is None else out
        rows.copy_(start)
        before = oracle.losses(rows, data) if "loss_before" in group.reports else None
        steps = self.solver.steps_for(data.sizes)
        units = data.sizes if oracle.batches else np.ones_like(data.sizes)
        plan = BatchPlan.draw(
            group.streams, units, data.offsets[:-1], steps, self.solver.batch_size
        )
        moving = slice(0, oracle.layout.trainable)
        local_state = LocalState.of(
            self.solver, algorithm_state, clients.tolist(), group.version, start[:, moving]
        )
        rule = self._rule(start[:, moving], group.version, local_state)
        _walk(oracle, rule, rows, data, plan)
        after = oracle.losses(rows, data) if "loss_after" in group.reports else None
        state = self._own_entries(rows)
        rows.sub_(start)
        if self.wire.personal is not None:
            rows[:, self.wire.personal] = 0.0
        state |= local_state.after(rows[:, moving], steps, rule.rate)
        kept = self.wire.kept(algorithm_state, clients.tolist(), start[0])
        sent = self.wire.encode(rows, kept, group.streams)
        norms = (
            torch.linalg.vector_norm(rows, dim=1).double().cpu().numpy()
            if self.wire.identity
            else None
        )
        return Arrivals(
            payload=sent.payload,
            samples=np.asarray(data.sizes),
            steps=steps,
            loss_before=before,
            loss_after=after,
            norms=norms,
            client_state={**state, **sent.kept},
        )

    def _rule(self, start: Stack, version: int, local_state: LocalState) -> StepRule:
        """The solver's step, with what its memory adds."""
        rule = self.solver.rule(start, version)
        transforms = (*local_state.terms(start), *rule.transforms)
        return replace(rule, transforms=transforms, point=local_state.point() or rule.point)

    def _with_personal(self, start: Stack, clients: Ints, algorithm_state: AlgorithmState) -> Stack:
        """The models received, with each client's own entries where it has some."""
        if self.wire.personal is None:
            return start
        rows = start.clone()
        for k, client in enumerate(clients.tolist()):
            own = algorithm_state.client_state.get(client, {}).get(PERSONAL)
            if own is not None:
                rows[k, self.wire.personal] = own.to(rows)
        return rows

    def _own_entries(self, rows: Stack) -> dict[str, Stack]:
        """The entries that stay with each client, after its work."""
        return {} if self.wire.personal is None else {PERSONAL: rows[:, self.wire.personal]}


class BackendPart(Protocol):
    """A backend as a part: a run opens it once."""

    @property
    def device(self) -> str:
        """Where models and gradients live."""

    def open(self, local: LocalWork, clients: Owners, seed: int) -> Backend:
        """Start the workers of a run."""


def _walk(oracle: Oracle, rule: StepRule, rows: Stack, data: Any, plan: BatchPlan) -> None:
    """All local steps, in place; a client stops after its own number of steps."""
    plain = not rule.transforms and rule.point is None
    if plain and _descends(type(oracle)):  # gradient and step are one pass
        cast(Descends, oracle).descend(rows, data, plan, rule.rate)
        return
    trainable = oracle.layout.trainable
    scratch = torch.empty_like(rows[:, :trainable])
    for batch in plan:
        active = rows[: len(batch.counts)]
        weights, gradients = active[:, :trainable], scratch[: len(active)]
        at = active
        if rule.point is not None:
            at = torch.cat([rule.point(weights), active[:, trainable:]], dim=1)
        oracle.gradients(at, data, batch, out=gradients)
        if at is not active:
            active[:, trainable:] = at[:, trainable:]
        for transform in rule.transforms:
            gradients = transform(gradients, weights)
        weights.sub_(gradients, alpha=rule.rate)


@lru_cache
def _descends(kind: type) -> bool:
    """Whether oracles of a class are `Descends`: asked once per class, for workers wait for each
    other meanwhile.
    """
    return hasattr(kind, "descend")
