"""Local work that is done lazily."""

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
    """Clients whose local work is never used, because they send something else: nobody trains for
    them.
    """

    clients: frozenset[int]
    sizes: Ints  # (N,)
    solver: Solver

    def nothing(
        self, assignments: Sequence[Assignment], like: Vector, reports: frozenset[str]
    ) -> Arrivals:
        """Empty rows, with the sizes they declare and the steps they would claim."""
        sizes = self.sizes[[f.client for f in assignments]]
        rows = len(assignments)
        unknown: dict[str, Any] = {name: np.full(rows, np.nan) for name in sorted(reports)}
        return Arrivals(
            payload={UPDATE: like.new_zeros((rows, len(like)))},
            samples=sizes,
            steps=self.solver.steps_for(sizes),
            norms=np.zeros(rows),
            **unknown,
        )


@dataclass
class LazyExecutor:
    """Work is done when it is first needed, and then all that has begun is done at once.

    The updates that `collect` returns are good until it is called again: their memory is then used
    anew.
    """

    backend: Backend
    reports: frozenset[str]
    idle: IdleClients | None = None
    _done: dict[tuple[int, int, int], tuple[Arrivals, int]] = field(default_factory=dict)
    _spare: Stack | None = None

    @property
    def map_workers(self) -> MapWorkers:
        """Maps over the backend's workers."""
        return self.backend.map_workers

    def collect(self, arrived: Sequence[Assignment], state: State) -> Arrivals:
        """The answers of the assignments that arrived, in their order; ``state`` holds the models
        they began from.
        """
        if any(f.key not in self._done for f in arrived):
            begun = arrived if self.backend.real_time else (*arrived, *state.in_flight.assignments)
            self._work([f for f in begun if f.key not in self._done], state)
        return _stacked([self._done.pop(f.key) for f in arrived], state.theta, self.reports)

    def _work(self, todo: list[Assignment], state: State) -> None:
        """Do these pieces of work, and lay their answers ready."""
        self._compact()
        if self.idle is not None:
            todo = self._pass_over(todo, self.idle, state.theta)
        if not todo:
            return
        versions = {f.version for f in todo}
        models = {v: m for v, m in state.models.items() if v in versions}
        order = WorkOrder(todo, models, self.reports, state.algorithm_state)
        arrivals = self.backend.work(order, self._room(len(todo)))
        self._spare = arrivals.payload.get(UPDATE)
        self._done |= {f.key: (arrivals, row) for row, f in enumerate(todo)}

    def _room(self, rows: int) -> Stack | None:
        """The stack of the last piece of work, where it fits and nobody needs it any more."""
        spare, self._spare = self._spare, None
        needed = any(a.payload.get(UPDATE) is spare for a, _ in self._done.values())
        return None if spare is None or len(spare) != rows or needed else spare

    def _pass_over(
        self, todo: list[Assignment], idle: IdleClients, like: Vector
    ) -> list[Assignment]:
        """Those who work; for the others, empty rows are laid ready."""
        resting = [f for f in todo if f.client in idle.clients]
        nothing = idle.nothing(resting, like, self.reports)
        self._done |= {f.key: (nothing, row) for row, f in enumerate(resting)}
        return [f for f in todo if f.client not in idle.clients]

    def _compact(self) -> None:
        """Copy out the few rows that are left of earlier pieces of work, so that the rest of them
        can be let go.
        """
        for key, (arrivals, row) in self._done.items():
            if len(arrivals) > 1:
                self._done[key] = (arrivals.rows(np.array([row])), 0)


def _stacked(found: list[tuple[Arrivals, int]], like: Vector, reports: frozenset[str]) -> Arrivals:
    """Rows taken from one or several pieces of work."""
    if not found:
        none, whole = np.zeros(0), np.zeros(0, dtype=np.int64)
        losses: dict[str, Any] = dict.fromkeys(reports, none)
        return Arrivals(
            {UPDATE: like.new_zeros((0, len(like)))}, whole, whole, norms=none, **losses
        )
    if len({id(arrivals) for arrivals, _ in found}) == 1:
        return found[0][0].rows(np.array([row for _, row in found], dtype=np.int64))
    return Arrivals.join([arrivals.rows(np.array([row])) for arrivals, row in found])
