"""The losses that clients would report: what loss-based parts decide by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from poise.analysis.explain.client_gradients import cost, some_clients
from poise.core.errors import PoiseError
from poise.core.protocols import Oracle
from poise.core.rng import keys
from poise.core.types import Floats, Ints
from poise.core.vectors import Vector
from poise.engine.local_work import LocalWork, WorkGroup
from poise.training import Composition

ROOM = 6e9
"""Multiplications that the probe may take."""


@dataclass(frozen=True)
class ReportedLosses:
    """Losses of some clients before and after one piece of work, and the norms of what they
    changed.
    """

    numbers: Ints  # (m,)
    before: Floats
    after: Floats
    norms: Floats
    clients: int  # N

    @property
    def whole(self) -> bool:
        """Whether all clients were asked."""
        return len(self.numbers) == self.clients

    def table(self, seed: int = 0) -> dict[str, Floats]:
        """Values for every client, (N,); whoever was not asked gets those of a client that was."""
        stand_in = np.random.default_rng(seed).integers(0, len(self.numbers), self.clients)
        stand_in[self.numbers] = np.arange(len(self.numbers))
        found = {
            "before": self.before[stand_in],
            "after": self.after[stand_in],
            "norms": self.norms[stand_in],
        }
        return found if self.whole else {**found, "like": stand_in.astype(np.float64)}


def reported_losses(composition: Composition, oracle: Oracle, theta: Vector) -> ReportedLosses:
    """Let clients work once from a model, as many as there is room for."""
    federation = composition.federation
    solver = composition.parts.solver
    reports = composition.parts.reports
    seed = composition.seed
    sizes = np.asarray(federation.sizes)
    batch = sizes if solver.batch_size is None else np.minimum(solver.batch_size, sizes)
    samples = (
        float((solver.steps_for(sizes[:1000]) * batch[:1000] + 0.7 * sizes[:1000]).mean())
        if oracle.batches
        else 1
    )
    numbers = some_clients(federation, int(np.clip(ROOM / (cost(oracle) * samples), 4, 200)), seed)
    order = np.argsort(-solver.steps_for(sizes[numbers]), kind="stable")
    numbers = numbers[order]
    found: list[tuple[Floats, Floats, Floats]] = []
    local = LocalWork.plain(oracle, solver)
    width = max(1, min(oracle.rows(solver.batch_size), 32))
    for a in range(0, len(numbers), width):
        some = numbers[a : a + width]
        streams = keys(seed, "batches", 0, some, np.zeros_like(some))
        done = local.run(theta.repeat(len(some), 1), WorkGroup(some, 0, streams, reports))
        blank = np.full(len(some), np.nan)
        before = blank if done.loss_before is None else done.loss_before
        after = blank if done.loss_after is None else done.loss_after
        assert done.norms is not None
        found.append((before, after, done.norms))
    before, after, norms = (np.concatenate(c) for c in zip(*found, strict=True))
    if "loss_before" in reports and not np.isfinite(before).all():
        raise PoiseError("the first model has losses that are not finite")
    back = np.argsort(numbers, kind="stable")
    return ReportedLosses(
        numbers[back], before[back], after[back], norms[back], int(federation.clients)
    )
