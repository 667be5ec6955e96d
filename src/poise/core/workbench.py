"""Local work that is done lazily."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from poise.core.memory import Memories
from poise.core.protocols import Backend, Solver
from poise.core.threads import Spread, in_turn
from poise.core.types import Flight, Ints, Updates
from poise.core.vectors import Stack, Vector


@dataclass(frozen=True)
class Idle:
    """Clients that nobody needs to work for: what they send does not depend on it."""

    clients: frozenset[int]
    sizes: Ints  # (N,)
    solver: Solver

    def nothing(self, flights: Sequence[Flight], like: Vector, reports: frozenset[str]) -> Updates:
        """Empty rows, with the sizes they declare and the steps they would claim."""
        sizes = self.sizes[[f.client for f in flights]]
        zeros, unknown = np.zeros(len(flights)), np.full(len(flights), np.nan)
        before, after = (unknown if name in reports else None for name in ("loss_before", "loss_after"))
        deltas = like.new_zeros((len(flights), len(like)))
        return Updates(deltas, zeros, sizes, self.solver.steps_for(sizes), before, after)


@dataclass
class Workbench:
    """Work is done when it is first needed, and then all that has begun is done at once.

    The updates that `collect` returns are good until it is called again: their memory is then used anew.
    """

    backend: Backend
    reports: frozenset[str]
    idle: Idle | None = None
    as_they_come: bool = False  # work under way is not done yet: it really takes its time
    _done: dict[tuple[int, int, int], tuple[Updates, int]] = field(default_factory=dict)
    _spare: Stack | None = None

    @property
    def spread(self) -> Spread:
        """Maps over the backend's workers, where it has some here."""
        found: Spread = getattr(self.backend, "spread", in_turn)
        return found

    def collect(
        self, arrived: Sequence[Flight], under_way: Sequence[Flight], models: Mapping[int, Vector], like: Vector,
        memories: Memories | None = None,
    ) -> Updates:  # fmt: skip
        """The updates of the flights that arrived, in their order; ``models`` holds the versions they began from."""
        if any(f.key not in self._done for f in arrived):
            known = arrived if self.as_they_come else (*arrived, *under_way)
            todo = [f for f in known if f.key not in self._done]
            self._compact()
            if self.idle is not None:
                todo = self._pass_over(todo, self.idle, like)
            if not todo:
                return _stacked([self._done.pop(f.key) for f in arrived], like, self.reports)
            versions = {f.version for f in todo}
            wanted = {v: m for v, m in models.items() if v in versions}
            spare, self._spare = self._spare, None
            if spare is not None and (
                len(spare) != len(todo) or any(u.deltas is spare for u, _ in self._done.values())
            ):
                spare = None
            updates = self.backend.work(wanted, todo, self.reports, spare, memories)
            self._spare = updates.deltas
            self._done |= {f.key: (updates, row) for row, f in enumerate(todo)}
        found = [self._done.pop(f.key) for f in arrived]
        return _stacked(found, like, self.reports)

    def _pass_over(self, todo: list[Flight], idle: Idle, like: Vector) -> list[Flight]:
        """Those who work; for the others, empty rows are laid ready."""
        resting = [f for f in todo if f.client in idle.clients]
        nothing = idle.nothing(resting, like, self.reports)
        self._done |= {f.key: (nothing, row) for row, f in enumerate(resting)}
        return [f for f in todo if f.client not in idle.clients]

    def _compact(self) -> None:
        """Copy out the few rows that are left of earlier pieces of work, so that the rest of them can be let go."""
        self._done = {key: (u.rows(np.array([row])), 0) if len(u.norms) > 1 else (u, row)
                      for key, (u, row) in self._done.items()}  # fmt: skip


def _stacked(found: list[tuple[Updates, int]], theta: Vector, reports: frozenset[str]) -> Updates:
    """Rows taken from one or several pieces of work."""
    if not found:
        none = np.zeros(0)
        empty = none if reports else None
        return Updates(theta.new_zeros((0, len(theta))), none, none.astype(int), none.astype(int), empty, empty)
    sources = {id(u) for u, _ in found}
    if len(sources) == 1:
        return found[0][0].rows(np.array([row for _, row in found], dtype=np.int64))
    return Updates.join([u.rows(np.array([row])) for u, row in found])
