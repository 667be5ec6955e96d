r"""Psi(n, W): how far a group of clients W has moved the model together.

``Psi(n, W)`` sums ``| Delta(S) - Delta(S \ W) |`` over the rounds like the sensitivity of a
client. The largest sensitivity of a member is no bound for it: the members' updates may
point the same way.

The distances come from the first of these sources that a run has:

- measurements of training, for a group that ``[unlearning] groups`` declares;
- the stored updates of the round (``keep_updates``);
- a bound. With O the sum of all coefficients, C_i the sum of client i's weighted
  updates, W_i the sum of its coefficients and D the direction, the distance of a group is
  ``| sum_{i in W} (O C_i - W_i D) | / |O - W|``. Each summand is the measured distance of
  client i times ``|O - W_i|``, so the triangle inequality bounds the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from poise.core.errors import InvalidOption
from poise.core.sensitivity import (
    Group,
    group_measurement,
)
from poise.core.types import Floats
from poise.privacy.budget import Budget
from poise.results import Run
from poise.unlearning.ledger_sensitivity import measured_distances, tracker_for

Source = Literal["measured in training", "stored updates", "bound"]


@dataclass(frozen=True)
class GroupSensitivity:
    """Psi(n, W) after every aggregation n, (R + 1,), and where its distances come from."""

    values: Floats
    source: Source


@dataclass(frozen=True)
class Round:
    """The contributions of one round."""

    index: int
    span: slice
    weights: Floats
    removed: NDArray[np.bool_]


def group_sensitivity(
    run: Run, group: Sequence[int], budget: Budget | None = None
) -> GroupSensitivity:
    """Return the sensitivity of the model to a group of clients together.

    Args:
        run: a run.
        group: W, numbered as in the run.
        budget: how sensitivities are counted; the default budget otherwise.
    """
    budget = budget or Budget()
    if budget.participation == "optimistic":
        raise InvalidOption(
            "the sensitivity of a group has no optimistic form",
            "use participation='conservative', or guarantee='each'",
        )
    members = tuple(sorted({int(c) for c in group}))
    psi = tracker_for(run, budget)
    source, distance = _distances(run, members, lr=psi.lr)
    contributions = run.contributions
    ends = np.searchsorted(contributions["round"], np.arange(run.rounds + 1))
    removed = np.isin(contributions["client"], members)
    values = np.zeros(run.rounds + 1)
    for n in range(run.rounds):
        span = slice(int(ends[n]), int(ends[n + 1]))
        weights = np.ascontiguousarray(contributions["coefficient"][span])
        round = Round(n, span, weights, removed[span])
        steps = contributions["steps"][span]
        factor = psi.growth_without(round.removed, weights, steps)
        moved = distance(round) if round.removed.any() else 0.0
        values[n + 1] = factor * values[n] + moved
    return GroupSensitivity(values, source)


def _distances(
    run: Run, members: Group, *, lr: float
) -> tuple[Source, Callable[[Round], float]]:
    """Return the best source of a group's distances, and the distance of a round."""
    declared = run.groups
    if members in declared and len(run.contributions):
        column = run.measurement(group_measurement(declared.index(members)))
        return "measured in training", lambda r: _finite(column[r.span].sum())
    if run.keeps_updates:
        return "stored updates", lambda r: lr * _from_updates(run, r)
    moved = measured_distances(run)
    return "bound", lambda r: _bound(run, r, moved[r.span], lr=lr)


def _from_updates(run: Run, round: Round) -> float:
    r"""Return ``| Delta(S) - Delta(S \ W) |`` from the stored updates of a round."""
    deltas = run.updates(round.index)[:, : run.trainable].astype(np.float64)
    direction = round.weights @ deltas
    others = np.where(round.removed, 0.0, round.weights)
    rest = others.sum()
    without = np.zeros_like(direction)
    if others.any() and rest:
        without = others @ deltas * (round.weights.sum() / rest)
    return _finite(float(np.linalg.norm(direction - without)))


def _bound(run: Run, round: Round, moved: Floats, *, lr: float) -> float:
    """Return the bound of the triangle inequality from the members' measurements."""
    total = round.weights.sum()
    others = round.weights[~round.removed]
    rest = others.sum()
    if not others.any() or rest == 0:
        norms = run.contributions["norm"][round.span]
        return _finite(lr * np.abs(round.weights) @ norms)
    clients = run.contributions["client"][round.span][round.removed]
    _, owner = np.unique(clients, return_inverse=True)
    weight = np.bincount(owner, round.weights[round.removed])
    distance = np.bincount(owner, moved[round.removed])
    if (total - weight == 0).any():  # the distance to no step says nothing of O C_i
        return np.inf
    return _finite(np.abs(total - weight) @ distance / abs(rest))


def _finite(distance: float) -> float:
    """Return a distance; infinity if it was not measured."""
    if np.isnan(distance):
        return np.inf
    return float(distance)


__all__ = ["GroupSensitivity", "group_sensitivity"]
