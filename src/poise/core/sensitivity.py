"""How far each client has moved the model: the bounded sensitivity Psi(n, i) of [Fraboni 2023, eq.
5.8 and 5.11].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from poise.core.types import Floats, Ints, Record

if TYPE_CHECKING:
    from poise.core.history import History
    from poise.core.round_updates import RoundUpdates

MOVED = "moved"
"""The reading: how far the step would have been from the one made, had the client not been
there."""


@dataclass
class Psi:
    """Psi(n, i) after the records so far: ``Psi <- growth Psi + moved``, client by client; 0 for
    one never seen.

    ``growth`` is 1 for FedAvg (eq. 5.8) and ``decay^K`` where local steps contract (eq. 5.11); see
    `growth`.

    Args:
        decay: ``1 - eta (lambda + mu)``, by which one local step contracts; 1 where nothing is
            known (eq. 5.8).
        lr: the server's learning rate.
        importance: p_i, to count ``p_c/(1 - p_c)`` instead of c's share of the cohort; None counts
            the share.

    >>> from poise.core.types import Contribution
    >>> psi = Psi(decay=0.5)
    >>> for n in range(2):
    ...     read = {"moved": np.ones(1)}
    ...     _ = psi.add(Record(n, 0.0, (Contribution(3, n, 0, 1, 1, 2, 9, 1),), {}, 0, 0, measurements=read))
    >>> psi.values
    {3: 1.5}
    """

    decay: float = 1.0
    values: dict[int, float] = field(default_factory=dict)
    importance: Floats | None = None
    lr: float = 1.0

    def add(self, record: Record) -> float:
        """Take in one more round; a client that was not read is beyond every limit. Returns the
        round's growth.
        """
        if not record.contributions:
            return 1.0
        clients = np.array([c.client for c in record.contributions])
        weights = np.array([c.coefficient for c in record.contributions])
        read = record.measurements.get(MOVED, np.full(len(clients), np.nan))
        return self.take(clients, weights, read, min(c.steps for c in record.contributions))

    def take(self, clients: Ints, weights: Floats, read: Floats, steps: int) -> float:
        """The same from columns: who contributed, with which coefficient, the measurements, and the
        least local work.
        """
        factor = growth(self.lr * weights, self.decay**steps)
        if factor != 1:
            self.values = {client: factor * value for client, value in self.values.items()}
        if self.importance is not None:
            read = read * _optimism(clients, weights, self.importance)
        for client, value in zip(clients.tolist(), read.tolist(), strict=True):
            self.values[client] = self.values.get(client, 0.0) + (
                np.inf if np.isnan(value) else value
            )
        return factor

    def of(self, client: int) -> float:
        """Psi of one client."""
        return self.values.get(client, 0.0)


def growth(weights: Floats, contraction: float) -> float:
    """By how much a round may scale the distance between two models that it is applied to.

    A client's local work multiplies a distance by some ``M_i`` with eigenvalues between 0 and
    ``contraction`` [Fraboni 2023, App. D.2], so the round multiplies it by
    ``1 - sum w_i (1 - M_i)``, w_i the
    coefficients times the server's rate. They need not add up to 1: below, the server keeps some of
    the old model, which does not contract; above 2, it overshoots.

    >>> growth(np.array([0.5, 0.5]), 1.0), growth(np.array([0.5, 0.5]), 0.25), growth(np.array([0.25, 0.25]), 0.25)
    (1.0, 0.25, 0.625)
    >>> growth(np.array([1.5, 1.5]), 1.0)
    2.0
    """
    plus, minus = float(weights[weights > 0].sum()), float(weights[weights < 0].sum())
    highest = 1 - plus * (1 - contraction) - minus
    lowest = 1 - plus - minus * (1 - contraction)
    return max(highest, -lowest)


def _optimism(clients: Ints, weights: Floats, importance: Floats) -> Floats:
    """``p_c/(1 - p_c)`` over ``W/(O - W)``: 1 where everyone takes part with weight p_c; 0 for a
    cohort of one.
    """
    total = weights.sum()
    _, owner = np.unique(clients, return_inverse=True)
    weight, p = np.bincount(owner, weights)[owner], importance[clients]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.abs((total - weight) / weight) * p / (1 - p)
    return np.where(weight == 0, 0.0, ratio)


@dataclass(frozen=True)
class SensitivityProbe:
    r"""``lr * | Delta(S) - Delta(S \ c) |`` of every client c in the cohort S, on its first row (0
    on others).

    With coefficients omega, C = sum of c's own ``omega_k Delta_k``, W the sum of its coefficients,
    O of all and D the
    direction: the others are taken with their coefficients, scaled to the same total, so
    ``D - O/(O - W) (D - C) = (O C - W D)/(O - W)``; a cohort of c alone is compared with no step at
    all.

    Args:
        lr: the server's learning rate.
        limit: clients whose sensitivity is above this are not read any more (nan).

    Source: [Fraboni 2023, eq. 5.8, D.23 to D.25].
    """

    lr: float = 1.0
    limit: float = np.inf

    def read(self, updates: RoundUpdates, past: History) -> Mapping[str, Floats]:
        """The reading of every row."""
        open_ = np.array([past.psi.of(c) <= self.limit for c in updates.clients.tolist()])
        found = np.full(len(open_), np.nan)
        if open_.any():
            found[open_] = self.lr * moved(updates, np.flatnonzero(open_))
        return {MOVED: found}


def moved(updates: RoundUpdates, rows: Ints | None = None) -> Floats:
    """The formula of `SensitivityProbe` with lr = 1, for some rows of the cohort (None: all)."""
    import torch

    wanted = np.arange(len(updates.clients)) if rows is None else rows
    clients, first, owner = np.unique(updates.clients, return_index=True, return_inverse=True)
    if len(clients) == len(updates.clients):
        return _apart(updates, wanted, updates.weights[wanted], _distances(updates, wanted))
    coefficients = torch.from_numpy(updates.weights).to(updates.deltas)
    own = updates.deltas.new_zeros((len(clients), updates.deltas.shape[1]))
    own.index_add_(0, torch.from_numpy(owner), updates.deltas * coefficients[:, None])
    weight, total = (
        np.bincount(owner, updates.weights).astype(np.float64),
        float(updates.weights.sum()),
    )
    away = total * own - torch.from_numpy(weight).to(own)[:, None] * updates.weighted_sum
    result = np.zeros(len(updates.clients))
    result[first] = _apart(
        updates, first, weight, torch.linalg.vector_norm(away, dim=1).double().cpu().numpy()
    )
    return np.asarray(result[wanted])


def _apart(updates: RoundUpdates, rows: Ints, weight: Floats, away: Floats) -> Floats:
    """``|O C - W D| / |O - W|`` of the clients of these rows."""
    total = float(updates.weights.sum())
    rest = np.abs(total - weight)
    result = away / np.where(rest == 0, 1.0, rest)
    for k in np.flatnonzero(
        (rest < 0.1 * abs(total)) & (weight != 0)
    ).tolist():  # O C - W D would cancel
        result[k] = _against_others(updates, updates.clients != updates.clients[rows[k]])
    return np.asarray(result)


def _against_others(updates: RoundUpdates, others: NDArray[np.bool_]) -> float:
    """``| D - O/(O - W) (D - C) |`` with the step of the others added up by itself; no step where
    there is nobody.
    """
    import torch

    weights = torch.from_numpy(np.where(others, updates.weights, 0.0)).to(updates.deltas)
    rest = float(updates.weights[others].sum())
    without = weights @ updates.deltas * (float(updates.weights.sum()) / rest) if rest else 0.0
    return float(torch.linalg.vector_norm(updates.weighted_sum - without).double())


def _distances(updates: RoundUpdates, rows: Ints) -> Floats:
    """``|omega_i| |O Delta_i - D|`` of rows that are each a client of its own."""
    import torch

    total, weight = float(updates.weights.sum()), np.abs(updates.weights[rows])
    if total == 0:
        return weight * float(torch.linalg.vector_norm(updates.weighted_sum).double())
    return np.asarray(weight * abs(total) * updates.from_centre[rows])
