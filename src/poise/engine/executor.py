"""`LazyExecutor`: do local work when its result is first needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from poise.core.arrivals import UPDATE, Arrivals
from poise.core.protocols import Backend, Solver, WorkOrder
from poise.core.threads import MapWorkers
from poise.core.types import Assignment, Ints
from poise.core.vectors import Stack, Vector
from poise.engine.state import State


@dataclass(frozen=True)
class IdleClients:
    """Dishonest clients whose work is never used: the executor skips their training."""

    clients: frozenset[int]
    sizes: Ints  # (N,)
    solver: Solver

    def answers(
        self, assignments: Sequence[Assignment], model: Vector, reports: frozenset[str]
    ) -> Arrivals:
        """Return zeros as updates, with the sizes and steps that clients declare."""
        sizes = self.sizes[[a.client for a in assignments]]
        rows = len(assignments)
        losses: dict[str, Any] = {
            name: np.full(rows, np.nan) for name in sorted(reports)
        }
        return Arrivals(
            payload={UPDATE: model.new_zeros((rows, len(model)))},
            samples=sizes,
            steps=self.solver.steps_for(sizes),
            norms=np.zeros(rows),
            **losses,
        )


@dataclass
class LazyExecutor:
    """Does work when its result is first needed, with all other work in flight.

    The updates that `collect` returns are valid until its next call, which reuses their
    memory.
    """

    backend: Backend
    reports: frozenset[str]
    idle: IdleClients | None = None
    _done: dict[tuple[int, int, int], tuple[Arrivals, int]] = field(
        default_factory=dict
    )
    _spare: Stack | None = None

    @property
    def map_workers(self) -> MapWorkers:
        """Maps over the backend's workers."""
        return self.backend.map_workers

    def collect(self, arrived: Sequence[Assignment], state: State) -> Arrivals:
        """Return the answers of the arrived assignments, in their order.

        ``state`` holds the models from which they started.
        """
        if any(a.key not in self._done for a in arrived):
            begun = arrived
            if not self.backend.real_time:
                begun = (*arrived, *state.in_flight.assignments)
            self._work([a for a in begun if a.key not in self._done], state)
        answers = [self._done.pop(a.key) for a in arrived]
        return _joined(answers, state.theta, self.reports)

    def _work(self, assignments: list[Assignment], state: State) -> None:
        """Do these assignments and store their answers."""
        self._compact()
        if self.idle is not None:
            assignments = self._skip_idle(assignments, self.idle, model=state.theta)
        if not assignments:
            return
        versions = {a.version for a in assignments}
        order = WorkOrder(
            assignments,
            models={v: model for v, model in state.models.items() if v in versions},
            reports=self.reports,
            algorithm_state=state.algorithm_state,
        )
        arrivals = self.backend.work(order, self._spare_stack(len(assignments)))
        self._spare = arrivals.payload.get(UPDATE)
        self._done |= {a.key: (arrivals, row) for row, a in enumerate(assignments)}

    def _spare_stack(self, rows: int) -> Stack | None:
        """Return the stack of the last work if it fits and no answer uses it."""
        spare = self._spare
        self._spare = None
        if spare is None or len(spare) != rows:
            return None
        in_use = any(a.payload.get(UPDATE) is spare for a, _ in self._done.values())
        if in_use:
            return None
        return spare

    def _skip_idle(
        self, assignments: list[Assignment], idle: IdleClients, model: Vector
    ) -> list[Assignment]:
        """Store empty answers of idle clients; return the assignments of the others."""
        skipped = [a for a in assignments if a.client in idle.clients]
        answers = idle.answers(skipped, model, self.reports)
        self._done |= {a.key: (answers, row) for row, a in enumerate(skipped)}
        return [a for a in assignments if a.client not in idle.clients]

    def _compact(self) -> None:
        """Copy the remaining rows of earlier work, to free the memory of the rest."""
        for key, (arrivals, row) in self._done.items():
            if len(arrivals) > 1:
                self._done[key] = (arrivals.rows(np.array([row])), 0)


def _joined(
    answers: list[tuple[Arrivals, int]], model: Vector, reports: frozenset[str]
) -> Arrivals:
    """Join rows of one or several pieces of work."""
    if not answers:
        return _no_arrivals(model, reports)
    if len({id(arrivals) for arrivals, _ in answers}) == 1:
        return answers[0][0].rows(np.array([row for _, row in answers], dtype=np.int64))
    return Arrivals.join([arrivals.rows(np.array([row])) for arrivals, row in answers])


def _no_arrivals(model: Vector, reports: frozenset[str]) -> Arrivals:
    """Return arrivals without rows."""
    no_floats = np.zeros(0)
    no_ints = np.zeros(0, dtype=np.int64)
    losses: dict[str, Any] = dict.fromkeys(reports, no_floats)
    return Arrivals(
        payload={UPDATE: model.new_zeros((0, len(model)))},
        samples=no_ints,
        steps=no_ints,
        norms=no_floats,
        **losses,
    )
