"""How far each client has moved the model: the sensitivity Psi(n, i).

Source: [Fraboni 2023, eq. 5.8 and 5.11].
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from poise.core.types import Floats, Ints, Record

if TYPE_CHECKING:
    from poise.core.history import History
    from poise.core.round_updates import RoundUpdates

SENSITIVITY = "sensitivity"
"""What a sampler needs that reads `Psi`: the probe then never stops measuring a client."""

MOVED = "moved"
"""The name of the measurement: the distance between the step made and the step without a client."""

Group: TypeAlias = tuple[int, ...]
"""Clients that are unlearned together, sorted."""


def group_measurement(index: int) -> str:
    """Return the name of the measurement of a declared group."""
    return f"{MOVED} by group {index}"


def recorded_groups(meta: Mapping[str, str]) -> tuple[Group, ...]:
    """Return the declared groups in the metadata of a ledger."""
    return tuple(tuple(group) for group in json.loads(meta.get("groups", "[]")))


@dataclass
class Psi:
    """Psi(n, i) after the records so far; 0 for a client that never contributed.

    Every round sets ``Psi <- growth Psi + moved`` for each client. ``growth`` is 1 for
    FedAvg (eq. 5.8) and ``decay^K`` if local steps contract (eq. 5.11); see `growth` and
    `growth_without_each`.

    Args:
        decay: the factor ``1 - eta (lambda + mu)`` by which one local step contracts; 1
            if it is unknown (eq. 5.8).
        one_hessian: whether a client's Hessian is known to be one matrix, the same at
            every model and in every local step.
        values: Psi by client.
        importance: p_i, to count ``p_c/(1 - p_c)`` instead of c's share of the cohort;
            None counts the share.
        lr: the server's learning rate.
        groups: declared groups; ``values`` has an entry for each.
        largest: the largest measured contribution of a client in one round so far.

    >>> from poise.core.types import Contribution
    >>> psi = Psi(decay=0.5)
    >>> for n in range(2):
    ...     cohort = tuple(Contribution(i, n, 0, 1, 0.5, 2, 9, 1) for i in (3, 4))
    ...     moved = {"moved": np.ones(2)}
    ...     _ = psi.add(Record(n, 0.0, cohort, {}, 0, 0, measurements=moved))
    >>> psi.values
    {3: 1.5, 4: 1.5}
    """

    decay: float = 1.0
    values: dict[int | Group, float] = field(default_factory=dict)
    importance: Floats | None = None
    lr: float = 1.0
    groups: tuple[Group, ...] = ()
    largest: float = 0.0
    one_hessian: bool = False

    def add(self, record: Record) -> float:
        """Add one more round; return its growth.

        A client without a measurement gets an infinite sensitivity.
        """
        if not record.contributions:
            return 1.0
        clients = np.array([c.client for c in record.contributions])
        weights = np.array([c.coefficient for c in record.contributions])
        moved = record.measurements.get(MOVED, np.full(len(clients), np.nan))
        steps = np.array([c.steps for c in record.contributions])
        for index, group in enumerate(self.groups):
            name = group_measurement(index)
            distance = float(record.measurements.get(name, np.full(1, np.inf)).sum())
            factor = self.growth_without(np.isin(clients, group), weights, steps)
            self.values[group] = factor * self.of(group) + distance
        return self.take(clients, weights, moved, steps)

    def growth_without(
        self, removed: NDArray[np.bool_], weights: Floats, steps: Ints
    ) -> float:
        """Return the growth of a round without the removed rows; 1 for an empty round."""
        if not len(steps):
            return 1.0
        return growth_without(removed, self.lr * weights, *self._local_work(steps))

    def _local_work(self, steps: Ints) -> tuple[float, float]:
        """Return the contraction and the asymmetry of the local work of a round."""
        contraction = self.decay ** int(steps.min())
        if self.one_hessian:
            return contraction, 0.0
        return contraction, asymmetry_of(int(steps.max()))

    def take(self, clients: Ints, weights: Floats, moved: Floats, steps: Ints) -> float:
        """Add one more round from columns; return the growth for clients outside of it.

        Args:
            clients: the clients that contributed, (m,).
            weights: their coefficients, (m,).
            moved: their measurements, (m,).
            steps: their numbers of local steps, (m,).
        """
        rates = self.lr * weights
        contraction, asymmetry = self._local_work(steps)
        outside = growth(rates, contraction, asymmetry)
        if outside != 1 or contraction != 1 or (rates < 0).any():
            inside = growth_without_each(clients, rates, contraction, asymmetry)
            for client, value in self.values.items():
                if isinstance(client, int):
                    self.values[client] = inside.get(client, outside) * value
        if self.importance is not None:
            moved = moved * _optimism(clients, weights, self.importance)
        # fmax ignores nan, a missing measurement
        self.largest = float(np.fmax.reduce(moved, initial=self.largest))
        for client, distance in zip(clients.tolist(), moved.tolist(), strict=True):
            if np.isnan(distance):
                distance = np.inf
            self.values[client] = self.values.get(client, 0.0) + distance
        return outside

    def of(self, client: int | Group) -> float:
        """Psi of one client, or of a declared group."""
        return self.values.get(client, 0.0)


def asymmetry_of(steps: int) -> float:
    """Return how far K local steps may be from a symmetric matrix: ``(K - 1)/(K + 1)``.

    A step with ``eta <= 1/L`` maps differences of models by a symmetric matrix with
    eigenvalues between 0 and 1. A product of K such matrices need not be symmetric, but
    it is ``1/(K + 1) + K/(K + 1) N`` with a map N that does not stretch
    [Combettes 2015]. The result is ``2 K/(K + 1) - 1``, 0 for one step.

    >>> asymmetry_of(1), asymmetry_of(3)
    (0.0, 0.5)
    """
    return (steps - 1) / (steps + 1)


def growth(weights: Floats, contraction: float, asymmetry: float = 0.0) -> float:
    """Return the largest factor by which a round may scale the distance between two models.

    A client's local work multiplies a distance by a matrix ``M_i``, for one step with
    eigenvalues between 0 and ``contraction`` [Fraboni 2023, App. D.2]. The round then
    multiplies it by ``1 - sum w_i (1 - M_i)``, where w_i is the coefficient times the
    server's rate. The w_i need not add up to 1: below 1, the server keeps a part of the
    old model, which does not contract; above 1, it may overshoot. `asymmetry_of` several
    steps matters only then.

    >>> growth(np.array([0.5, 0.5]), 1.0), growth(np.array([0.5, 0.5]), 0.25)
    (1.0, 0.25)
    >>> growth(np.array([0.25, 0.25]), 0.25)
    0.625
    >>> growth(np.array([1.5, 1.5]), 1.0), growth(np.array([1.5, 1.5]), 1.0, 0.5)
    (2.0, 3.5)
    """
    plus = weights[weights > 0].sum(keepdims=True)
    minus = weights[weights < 0].sum(keepdims=True)
    return float(_growth_of_sums(plus, minus, contraction, asymmetry)[0])


def growth_without_each(
    clients: Ints, weights: Floats, contraction: float, asymmetry: float = 0.0
) -> dict[int, float]:
    """Return, for every client of a round, the growth of the round without that client.

    The sensitivity of a client bounds the distance to a training without it, in which
    the others' coefficients are scaled to the same total. A client that was alone has
    factor 1: without it, the round makes no step.

    >>> growth_without_each(np.array([4]), np.array([1.0]), 0.25)
    {4: 1.0}
    >>> growth_without_each(np.array([4, 7]), np.array([0.5, 0.5]), 0.25)
    {4: 0.25, 7: 0.25}
    """
    unique, owner = np.unique(clients, return_inverse=True)
    plus = _sums_of_others(owner, np.maximum(weights, 0))
    minus = _sums_of_others(owner, np.minimum(weights, 0))
    others = np.rint(_sums_of_others(owner, (weights != 0).astype(np.float64)))
    rest = plus + minus
    steps = (others > 0) & (rest != 0)
    scale = np.where(steps, weights.sum() / np.where(steps, rest, 1.0), 0.0)
    scaled = np.stack([plus * scale, minus * scale])
    factors = _growth_of_sums(
        scaled.max(axis=0), scaled.min(axis=0), contraction, asymmetry
    )
    return dict(zip(unique.tolist(), factors.tolist(), strict=True))


def growth_without(
    removed: NDArray[np.bool_],
    weights: Floats,
    contraction: float,
    asymmetry: float = 0.0,
) -> float:
    """Return the growth of a round without the removed rows.

    >>> growth_without(np.array([True, True]), np.array([0.5, 0.5]), 0.25)
    1.0
    """
    if not removed.any():
        return growth(weights, contraction, asymmetry)
    owners = removed.astype(np.int64)
    return growth_without_each(owners, weights, contraction, asymmetry)[1]


def _sums_of_others(owner: Ints, values: Floats) -> Floats:
    """Return, for every owner, the sum of the values of the other owners."""
    return np.asarray(values.sum() - np.bincount(owner, values))


def _growth_of_sums(
    plus: Floats, minus: Floats, contraction: float, asymmetry: float
) -> Floats:
    """Return `growth` from the sums of the positive and of the negative weights."""
    reach = 1 + contraction * asymmetry
    highest = 1 - plus * (1 - contraction) - minus * reach
    lowest = 1 - plus * reach - minus * (1 - contraction)
    return np.asarray(np.maximum(highest, -lowest))


def _optimism(clients: Ints, weights: Floats, importance: Floats) -> Floats:
    """Return ``p_c/(1 - p_c)`` over ``W/(O - W)``.

    1 if every client takes part with weight p_c; 0 for a cohort of one client.
    """
    total = weights.sum()
    _, owner = np.unique(clients, return_inverse=True)
    weight = np.bincount(owner, weights)[owner]
    p = importance[clients]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.abs((total - weight) / weight) * p / (1 - p)
    return np.where(weight == 0, 0.0, ratio)


@dataclass(frozen=True)
class SensitivityProbe:
    r"""Measures ``lr * | Delta(S) - Delta(S \ c) |`` of every client c in the cohort S.

    The value is on the client's first row; its other rows have 0. Let D be the
    direction, O the sum of all coefficients, C the sum of c's own ``omega_k Delta_k``,
    and W the sum of c's coefficients. The step without c scales the other clients'
    coefficients to the same total O, so the difference is
    ``D - O/(O - W) (D - C) = (O C - W D)/(O - W)``. A cohort of c alone is compared
    with no step.

    Args:
        lr: the server's learning rate.
        limit: the probe stops measuring clients whose sensitivity is above this (nan).
        groups: declared groups. Their values are on the first row of a member, in
            measurements of their own.

    Source: [Fraboni 2023, eq. 5.8, D.23 to D.25].
    """

    lr: float = 1.0
    limit: float = np.inf
    groups: tuple[Group, ...] = ()

    def read(self, updates: RoundUpdates, past: History) -> Mapping[str, Floats]:
        """Return the measurement of every row."""
        measured = np.array(
            [past.psi.of(c) <= self.limit for c in updates.clients.tolist()]
        )
        distances = np.full(len(measured), np.nan)
        if measured.any():
            distances[measured] = self.lr * moved(updates, np.flatnonzero(measured))
        measurements = {MOVED: distances}
        for index, group in enumerate(self.groups):
            measurements[group_measurement(index)] = self._together(updates, group)
        return measurements

    def _together(self, updates: RoundUpdates, group: Group) -> Floats:
        """Return the distance to the step without a group, on the first row of a member."""
        distances = np.zeros(len(updates.clients))
        members = np.isin(updates.clients, group)
        if members.any():
            distances[members.argmax()] = self.lr * moved_together(updates, members)
        return distances


def moved(updates: RoundUpdates, rows: Ints | None = None) -> Floats:
    """Evaluate the formula of `SensitivityProbe` with lr = 1, for these rows or for all."""
    import torch

    wanted = np.arange(len(updates.clients)) if rows is None else rows
    if len(updates.clients) == 1 and updates.weights[0] != 0:
        alone = _against_others(updates, np.zeros(1, dtype=bool))
        return np.full(len(wanted), alone)
    clients, first, owner = np.unique(
        updates.clients, return_index=True, return_inverse=True
    )
    if len(clients) == len(updates.clients):
        numerators = _numerators(updates, wanted)
        return _quotients(
            updates, wanted, weight=updates.weights[wanted], numerators=numerators
        )
    coefficients = torch.from_numpy(updates.weights).to(updates.deltas)
    client_sums = updates.deltas.new_zeros((len(clients), updates.deltas.shape[1]))
    client_sums.index_add_(
        0, torch.from_numpy(owner), updates.deltas * coefficients[:, None]
    )
    weight = np.bincount(owner, updates.weights).astype(np.float64)
    total = float(updates.weights.sum())
    weight_column = torch.from_numpy(weight).to(client_sums)[:, None]
    differences = total * client_sums - weight_column * updates.weighted_sum
    numerators = torch.linalg.vector_norm(differences, dim=1).double().cpu().numpy()
    distances = np.zeros(len(updates.clients))
    distances[first] = _quotients(updates, first, weight=weight, numerators=numerators)
    return np.asarray(distances[wanted])


def moved_together(updates: RoundUpdates, members: NDArray[np.bool_]) -> float:
    r"""Return ``| Delta(S) - Delta(S \ W) |`` of the clients W of these rows.

    Source: [Fraboni 2023, eq. 5.8], for a group instead of a client.
    """
    return _against_others(updates, ~members)


def _quotients(
    updates: RoundUpdates, rows: Ints, weight: Floats, numerators: Floats
) -> Floats:
    """Return ``|O C - W D| / |O - W|`` of the clients of these rows."""
    total = float(updates.weights.sum())
    rest = np.abs(total - weight)
    distances = numerators / np.where(rest == 0, 1.0, rest)
    cancels = (rest < 0.1 * abs(total)) & (weight != 0)
    for k in np.flatnonzero(cancels).tolist():
        distances[k] = _against_others(
            updates, updates.clients != updates.clients[rows[k]]
        )
    return np.asarray(distances)


def _against_others(updates: RoundUpdates, others: NDArray[np.bool_]) -> float:
    """Return ``| D - O/(O - W) (D - C) |`` from the sum of the other clients' updates.

    Without other clients, the other step is 0.
    """
    import torch

    from poise.core.equation import combine

    rest = float(updates.weights[others].sum())
    difference = updates.weighted_sum
    if rest:
        weights = np.where(others, updates.weights, 0.0)
        scale = float(updates.weights.sum()) / rest
        difference = difference - combine(weights, updates.deltas) * scale
    return float(torch.linalg.vector_norm(difference).double())


def _numerators(updates: RoundUpdates, rows: Ints) -> Floats:
    """Return ``|omega_i| |O Delta_i - D|`` of rows with one row per client."""
    import torch

    total = float(updates.weights.sum())
    weight = np.abs(updates.weights[rows])
    if total == 0:
        return weight * float(torch.linalg.vector_norm(updates.weighted_sum).double())
    return np.asarray(weight * abs(total) * updates.from_centre[rows])
