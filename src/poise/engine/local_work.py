"""The local work of clients, in a simulation and on real nodes.

``W <- W - rate * T(G(W), W)`` for a stack of clients, each on its own batches and for
its own number of steps. A real node is a stack of one row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import numpy as np
import torch

from poise.core.algorithm_state import AlgorithmState, LocalState
from poise.core.arrivals import Arrivals
from poise.core.batches import Batch, BatchPlan
from poise.core.capabilities import batches_per_step, declares, samples_per_step
from poise.core.protocols import Backend, Descends, Oracle, Owners, Solver, StepRule
from poise.core.rng import U64
from poise.core.types import PERSONAL, Ints
from poise.core.vectors import Stack
from poise.engine.wire import Wire


@dataclass(frozen=True)
class WorkGroup:
    """Clients that work together in one stack.

    Args:
        clients: client numbers, (m,), ordered by number of local steps, most first.
        version: the model version that they received; it determines the learning rate.
        streams: one random stream per client, (m,).
        reports: which of ``loss_before``, ``loss_after`` to compute.
    """

    clients: Ints
    version: int
    streams: U64
    reports: frozenset[str] = frozenset()


@dataclass(frozen=True)
class LocalWork:
    """The work of every client of a run.

    Args:
        oracle: computes gradients and losses.
        solver: gives the local step.
        wire: encodes the updates, and knows which entries stay with the client.
    """

    oracle: Oracle
    solver: Solver
    wire: Wire

    @classmethod
    def plain(cls, oracle: Oracle, solver: Solver) -> LocalWork:
        """Return work whose updates travel whole and unchanged."""
        return cls(oracle, solver, Wire(oracle.layout))

    def run(
        self,
        start: Stack,
        group: WorkGroup,
        algorithm_state: AlgorithmState = AlgorithmState(),
        out: Stack | None = None,
    ) -> Arrivals:
        """Let clients work from ``start``, one row each, and return their answers.

        ``out`` is memory for the updates, (m, d).
        """
        oracle = self.oracle
        clients = group.clients
        data = oracle.open(clients, group.streams)
        start = self._with_personal(start, clients, algorithm_state)
        rows = torch.empty_like(start) if out is None else out
        if "loss_before" in group.reports:
            loss_before = oracle.losses(start, data)
        else:
            loss_before = None
        steps = self.solver.steps_for(data.sizes)
        units = data.sizes if oracle.batches else np.ones_like(data.sizes)
        plan = BatchPlan.draw(
            group.streams,
            units,
            data.offsets[:-1],
            steps,
            samples_per_step(self.solver),
        )
        trainable = slice(0, oracle.layout.trainable)
        local_state = LocalState.of(
            self.solver,
            algorithm_state,
            clients=clients.tolist(),
            version=group.version,
            start=start[:, trainable],
        )
        rule = self._rule(start[:, trainable], group.version, local_state)
        batches = batches_per_step(self.solver)
        if _in_one_pass(oracle, rule, batches):
            cast(Descends, oracle).descend(start, data, plan, rule.rate, out=rows)
        else:
            rows.copy_(start)
            _make_steps(oracle, rule, rows, data=data, plan=plan, batches=batches)
        if "loss_after" in group.reports:
            loss_after = oracle.losses(rows, data)
        else:
            loss_after = None
        client_state = self._personal_entries(rows)
        rows.sub_(start)
        if self.wire.personal is not None:
            rows[:, self.wire.personal] = 0.0
        client_state |= local_state.after(rows[:, trainable], steps, rule.rate)
        kept = self.wire.kept(algorithm_state, clients.tolist(), start[0])
        sent = self.wire.encode(rows, kept, group.streams)
        norms = None
        if self.wire.identity:
            norms = torch.linalg.vector_norm(rows, dim=1).double().cpu().numpy()
        return Arrivals(
            payload=sent.payload,
            samples=np.asarray(data.sizes),
            steps=steps,
            loss_before=loss_before,
            loss_after=loss_after,
            norms=norms,
            client_state={**client_state, **sent.kept},
        )

    def _rule(self, start: Stack, version: int, local_state: LocalState) -> StepRule:
        """Return the solver's step with the transforms and the point of its memory."""
        rule = self.solver.rule(start, version)
        transforms = (
            *local_state.terms(start),
            *rule.transforms,
            *local_state.directions(start),
        )
        return replace(
            rule, transforms=transforms, point=local_state.point() or rule.point
        )

    def _with_personal(
        self, start: Stack, clients: Ints, algorithm_state: AlgorithmState
    ) -> Stack:
        """Return the received models with the personal entries that clients have."""
        if self.wire.personal is None:
            return start
        rows = start.clone()
        for row, client in enumerate(clients.tolist()):
            entries = algorithm_state.client_state.get(client, {}).get(PERSONAL)
            if entries is not None:
                rows[row, self.wire.personal] = entries.to(rows)
        return rows

    def _personal_entries(self, rows: Stack) -> dict[str, Stack]:
        """Return the entries that stay with each client after its work."""
        if self.wire.personal is None:
            return {}
        return {PERSONAL: rows[:, self.wire.personal]}


class BackendPart(Protocol):
    """A part of the slot ``backend``; a run opens it once."""

    @property
    def device(self) -> str:
        """The device of models and gradients."""

    def open(self, local: LocalWork, clients: Owners, seed: int) -> Backend:
        """Start the workers of a run."""


def _in_one_pass(oracle: Oracle, rule: StepRule, batches: int) -> bool:
    """Whether the oracle makes the steps itself: plain ones, and it declares `Descends`."""
    plain = not rule.transforms and rule.point is None and batches == 1
    return plain and declares(type(oracle), "descend")


def _make_steps(
    oracle: Oracle,
    rule: StepRule,
    rows: Stack,
    data: Any,
    plan: BatchPlan,
    batches: int,
) -> None:
    """Make all local steps in place; a client stops after its own number of steps."""
    trainable = oracle.layout.trainable
    scratch = torch.empty_like(rows[:, :trainable])
    for batch in plan:
        active = rows[: len(batch.counts)]
        weights = active[:, :trainable]
        gradients = scratch[: len(active)]
        points = active
        if rule.point is not None:
            points = torch.cat([rule.point(weights), active[:, trainable:]], dim=1)
        if batches == 1:
            oracle.gradients(points, data, batch, out=gradients)
        else:
            _mean_gradients(oracle, points, data, batch.split(batches), out=gradients)
        if points is not active:  # keep the buffers that the oracle updated
            active[:, trainable:] = points[:, trainable:]
        for transform in rule.transforms:
            gradients = transform(gradients, weights)
        weights.sub_(gradients, alpha=rule.rate)


def _mean_gradients(
    oracle: Oracle,
    points: Stack,
    data: Any,
    parts: Iterable[tuple[Batch, torch.Tensor]],
    out: Stack,
) -> None:
    """Write the mean gradients over the parts of a batch into ``out``."""
    out.zero_()
    gradients = torch.empty_like(out)
    for batch, shares in parts:
        oracle.gradients(points, data, batch, out=gradients)
        out.addcmul_(gradients, shares.to(out)[:, None])
