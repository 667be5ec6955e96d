"""The losses that clients would report, as input of loss-based parts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from poise.core.capabilities import samples_per_step
from poise.core.errors import PoiseError
from poise.core.protocols import Oracle
from poise.core.rng import keys
from poise.core.types import Floats, Ints
from poise.core.vectors import Vector
from poise.engine.local_work import LocalWork, WorkGroup
from poise.tasks.client_gradients import cost, some_clients
from poise.training import Composition

BUDGET = 6e9
"""Multiplication budget of the local training."""


@dataclass(frozen=True)
class ReportedLosses:
    """Losses of clients before and after one local training, and their update norms."""

    numbers: Ints  # (m,)
    before: Floats
    after: Floats
    norms: Floats
    clients: int  # N

    @property
    def whole(self) -> bool:
        """Whether the losses of all clients are known."""
        return len(self.numbers) == self.clients

    def table(self, seed: int = 0) -> dict[str, Floats]:
        """Values of all clients, (N,); an unknown client takes a random known one's."""
        stand_in = np.random.default_rng(seed).integers(
            0, len(self.numbers), self.clients
        )
        stand_in[self.numbers] = np.arange(len(self.numbers))
        table = {
            "before": self.before[stand_in],
            "after": self.after[stand_in],
            "norms": self.norms[stand_in],
        }
        if not self.whole:
            table["like"] = stand_in.astype(np.float64)
        return table


def reported_losses(
    composition: Composition, oracle: Oracle, theta: Vector
) -> ReportedLosses:
    """Train once locally from a model, on as many clients as the budget allows."""
    federation = composition.federation
    solver = composition.parts.solver
    reports = composition.parts.reports
    seed = composition.seed
    sizes = np.asarray(federation.sizes)
    batch = sizes
    per_step = samples_per_step(solver)
    if per_step is not None:
        batch = np.minimum(per_step, sizes)
    if oracle.batches:
        samples = float(
            (solver.steps_for(sizes[:1000]) * batch[:1000] + 0.7 * sizes[:1000]).mean()
        )
    else:
        samples = 1
    numbers = some_clients(
        federation, int(np.clip(BUDGET / (cost(oracle) * samples), 4, 200)), seed
    )
    order = np.argsort(-solver.steps_for(sizes[numbers]), kind="stable")
    numbers = numbers[order]
    results: list[tuple[Floats, Floats, Floats]] = []
    local = LocalWork.plain(oracle, solver)
    width = max(1, min(oracle.rows(solver.batch_size), 32))
    for a in range(0, len(numbers), width):
        group = numbers[a : a + width]
        streams = keys(seed, "batches", 0, group, np.zeros_like(group))
        done = local.run(
            theta.repeat(len(group), 1), WorkGroup(group, 0, streams, reports)
        )
        before = _or_nan(done.loss_before, len(group))
        after = _or_nan(done.loss_after, len(group))
        assert done.norms is not None
        results.append((before, after, done.norms))
    before, after, norms = (
        np.concatenate(column) for column in zip(*results, strict=True)
    )
    if "loss_before" in reports and not np.isfinite(before).all():
        raise PoiseError(
            "the losses of the initial model are not finite",
            "check the data for NaN or very large values",
        )
    back = np.argsort(numbers, kind="stable")
    return ReportedLosses(
        numbers[back], before[back], after[back], norms[back], int(federation.clients)
    )


def _or_nan(losses: Floats | None, count: int) -> Floats:
    """The losses of a group of clients; nan if no part needs them."""
    if losses is None:
        return np.full(count, np.nan)
    return losses
