"""m urns from which one client each is drawn: the common ground of the clustered samplers.

Everything is counted in whole units, so that the probabilities are exact: client i has m n_i units,
every urn holds M = sum_j n_j of them, and r_ki = (units of client i in urn k) / M.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING

import numpy as np

from poise.core.errors import InvalidOption, require
from poise.core.statistics import WeightStatistics
from poise.core.types import Cohort, Floats, Ints, Setting

if TYPE_CHECKING:
    from scipy import sparse

LARGEST = 2**62
"""Units must be countable in 64 bits."""


@dataclass(frozen=True)
class SamplingDistributions:
    """SamplingDistributions laid end to end on a line of whole units, urn k from ``k * room`` to
    ``(k + 1) * room``.

    Piece e of the line belongs to ``clients[e]`` and ends before ``ends[e]``: 16 bytes per piece.
    """

    clients: Ints  # (pieces,)
    ends: Ints  # (pieces,) ascending; the last is urns * room
    room: int  # units per urn

    @property
    def count(self) -> int:
        """The number of urns, m."""
        return int(self.ends[-1]) // self.room

    def draw(self, rng: np.random.Generator) -> Ints:
        """One client from each urn, (m,). O(m log N)."""
        units = np.arange(self.count, dtype=np.int64) * self.room + rng.integers(
            0, self.room, self.count
        )
        return self.clients[np.searchsorted(self.ends, units, side="right")]

    def units(self, clients: int) -> sparse.csr_array:
        """The whole units of each client in each urn, (m, N), sparse."""
        from scipy import (
            sparse,
        )  # loaded where it is used: a node imports this module for every message

        borders = np.arange(1, self.count, dtype=np.int64) * self.room
        cuts = np.union1d(self.ends, borders)  # a piece that crosses a border is two
        lengths = np.diff(cuts, prepend=0)
        owners = self.clients[np.searchsorted(self.ends, cuts - 1, side="right")]
        urns = (cuts - 1) // self.room
        return sparse.csr_array((lengths, (urns, owners)), shape=(self.count, clients))

    def distributions(self, clients: int) -> Floats:
        """r_ki, (m, N): rows sum to 1, column i to m p_i."""
        return np.asarray(self.units(clients).toarray() / self.room, dtype=np.float64)

    def statistics(self, clients: int) -> WeightStatistics:
        """The closed forms of [Fraboni 2023, App. A.1.7]; gamma is that of Lemma A.4, Var omega_i +
        sum_k r_ki^2 / m^2.
        """
        m = self.count
        r = self.units(clients).astype(np.float64) / self.room
        mean = np.asarray(r.sum(axis=0)).ravel() / m
        squares = np.asarray(r.power(2).sum(axis=0)).ravel() / m**2
        missed = np.zeros(clients)  # log P(in no draw), -inf for a client that fills an urn
        with np.errstate(divide="ignore"):
            np.add.at(missed, r.indices, np.log1p(-r.data))

        def pairwise() -> Floats:
            matrix: Floats = -(r.T @ r).toarray() / m**2
            matrix[np.diag_indices(clients)] += mean / m
            return matrix

        return WeightStatistics(
            mean,
            mean / m - squares,
            alpha=None,
            sum_variance=0.0,
            expected_clients=float(-np.expm1(missed).sum()),
            pairwise=pairwise,
            overlap=squares,
        )


def distributions_by_size(units: Ints, m: int) -> SamplingDistributions:
    """Algorithm 2: clients by size, largest first, laid end to end and cut into m equal segments.

    Source: [Fraboni 2023, §3.4].
    """
    order = np.argsort(-units, kind="stable").astype(np.int64)
    order = order[units[order] > 0]
    return SamplingDistributions(order, np.cumsum(m * units[order]), int(units.sum()))


def distributions_by_group(units: Ints, groups: Iterable[Ints], m: int) -> SamplingDistributions:
    """SamplingDistributions that keep groups of clients together as far as they hold ([Fraboni
    2023, Alg. 3], lines 3 to 18).

    A client with m n_i >= M first fills floor(m n_i / M) urns alone; only the rest of it goes on
    (without this the scheme would be biased). The largest groups open one urn each; the clients of
    the others fill what room is left, urn after urn. What does not fit into the urn of its own
    group goes the same way.
    """
    room = int(units.sum())
    full, rest = np.divmod(m * units, room)
    alone = [(int(i), room) for i in np.repeat(np.arange(len(units)), full)]
    free = m - len(alone)
    members = [[(int(i), int(rest[i])) for i in sorted(group) if rest[i]] for group in groups]
    ranked = sorted((g for g in members if g), key=lambda g: (-sum(u for _, u in g), g[0][0]))
    urns: list[list[tuple[int, int]]] = []
    waiting: list[tuple[int, int]] = []
    for group in ranked[:free]:
        urn, over = _fill([], group, room)
        urns.append(urn)
        waiting += over
    waiting += [client for group in ranked[free:] for client in group]
    urns += [[] for _ in range(free - len(urns))]
    for k, urn in enumerate(urns):
        urns[k], waiting = _fill(urn, waiting, room)
    pieces = [*alone, *(piece for urn in urns for piece in urn)]
    clients, lengths = np.array(pieces, dtype=np.int64).T
    return SamplingDistributions(clients, np.cumsum(lengths), room)


def _fill(
    urn: list[tuple[int, int]], waiting: Sequence[tuple[int, int]], room: int
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Put clients into an urn until it is full, splitting the last; the urn and who is left."""
    urn, left = list(urn), room - sum(u for _, u in urn)
    for k, (client, units) in enumerate(waiting):
        if units >= left:
            urn += [(client, left)] if left else []
            over = [(client, units - left)] if units > left else []
            return urn, [*over, *waiting[k + 1 :]]
        urn.append((client, units))
        left -= units
    return urn, []


def cohort(drawn: Ints, independent: bool) -> Cohort:
    """M draws as a cohort: one row per draw with weight 1/m, or one per client with weight
    count/m.
    """
    if independent:
        return Cohort(np.sort(drawn), np.full(len(drawn), 1 / len(drawn)))
    clients, counts = np.unique(drawn, return_counts=True)
    return Cohort(clients, counts / len(drawn))


def units_of(setting: Setting, m: int) -> Ints:
    """Whole units in proportion to the importance: the sizes themselves where importance is by
    size.
    """
    sizes, p = setting.sizes.astype(np.int64), setting.importance
    if np.allclose(sizes / sizes.sum(), p, rtol=1e-12, atol=0):
        return checked_sizes(sizes, m)
    return whole_units(p, m)


def whole_units(importance: Floats, m: int) -> Ints:
    """Whole numbers in proportion to the importance: exact where it has a common denominator, else
    to 1e-12 or better.

    >>> whole_units(np.array([0.5, 1 / 3, 1 / 6]), 2)
    array([3, 2, 1])
    """
    p = np.asarray(importance, dtype=np.float64)
    require(
        p.ndim == 1 and bool((p >= 0).all()) and bool(p.sum() > 0),
        "importance must be numbers >= 0, one per client",
    )
    p = p / p.sum()
    if len(p) <= EXACT:
        shares = [Fraction(float(v)).limit_denominator(10**7) for v in p]
        total = lcm(*(s.denominator for s in shares))
        if total * m < LARGEST and np.allclose(
            p * total, np.round(p * total), rtol=1e-12, atol=1e-9
        ):
            return np.asarray(np.round(p * total), dtype=np.int64)
    total = LARGEST // (2 * m)
    return np.asarray(np.floor(p * min(total, 2**52)), dtype=np.int64)


EXACT = 20_000  # clients up to which a common denominator is looked for


def checked_sizes(sizes: Ints, m: int) -> Ints:
    """Client sizes as units, or an error that says what is wrong with them."""
    units = np.asarray(sizes)
    require(
        units.ndim == 1 and len(units) > 0, "sizes must be a list of whole numbers, one per client"
    )
    if (
        not np.array_equal(units, np.round(units))
        or bool((units < 0).any())
        or not bool(units.sum() > 0)
    ):
        bad = np.flatnonzero(~(units >= 0) | (units != np.round(units)))
        raise InvalidOption(
            f"size of client {bad[0] if len(bad) else 0} must be a whole number >= 0, with a sum "
            "above 0"
        )
    require(
        m * int(units.sum()) < LARGEST,
        f"{m} x {int(units.sum())} units cannot be counted in 64 bits",
    )
    return units.astype(np.int64)
