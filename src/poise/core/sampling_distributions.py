"""The m sampling distributions of the clustered samplers; each draws one client.

Probabilities are counted in whole units, so that they are exact: client i has m n_i
units, every distribution has M = sum_j n_j units, and r_ki = (units of client i in
distribution k) / M.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import lcm
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from poise.core.errors import InvalidOption, require
from poise.core.statistics import WeightStatistics
from poise.core.types import Cohort, Floats, Ints, Setting

if TYPE_CHECKING:
    from scipy import sparse

LARGEST = 2**62
"""The number of units must stay below this, to be counted in 64 bits."""

EXACT = 20_000
"""Up to this many clients, `whole_units` looks for a common denominator."""


@dataclass(frozen=True)
class SamplingDistributions:
    """The m distributions, laid end to end on a line of whole units.

    Distribution k covers the units from ``k * room`` to ``(k + 1) * room``. Segment e
    of the line belongs to ``clients[e]`` and ends before ``ends[e]``: 16 bytes per
    segment.
    """

    clients: Ints  # (segments,)
    ends: Ints  # (segments,) ascending; the last is m * room
    room: int  # units per distribution

    @property
    def count(self) -> int:
        """The number of distributions, m."""
        return int(self.ends[-1]) // self.room

    def draw(self, rng: np.random.Generator) -> Ints:
        """Draw one client from each distribution, (m,). O(m log N)."""
        starts = np.arange(self.count, dtype=np.int64) * self.room
        units = starts + rng.integers(0, self.room, self.count)
        return self.clients[np.searchsorted(self.ends, units, side="right")]

    def units(self, clients: int) -> sparse.csr_array:
        """Return the units of each client in each distribution, (m, N), sparse."""
        # not at the top: a node imports this module for every message
        from scipy import (
            sparse,
        )

        borders = np.arange(1, self.count, dtype=np.int64) * self.room
        # a segment that crosses a border becomes two
        cuts = np.union1d(self.ends, borders)
        lengths = np.diff(cuts, prepend=0)
        owners = self.clients[np.searchsorted(self.ends, cuts - 1, side="right")]
        distributions = (cuts - 1) // self.room
        return sparse.csr_array(
            (lengths, (distributions, owners)), shape=(self.count, clients)
        )

    def distributions(self, clients: int) -> Floats:
        """Return r_ki, (m, N): rows sum to 1, column i to m p_i."""
        return np.asarray(self.units(clients).toarray() / self.room, dtype=np.float64)

    def statistics(self, clients: int) -> WeightStatistics:
        """Return the closed forms of [Fraboni 2023, App. A.1.7].

        Gamma is that of Lemma A.4, Var omega_i + sum_k r_ki^2 / m^2.
        """
        m = self.count
        r = self.units(clients).astype(np.float64) / self.room
        mean = np.asarray(r.sum(axis=0)).ravel() / m
        squares = np.asarray(r.power(2).sum(axis=0)).ravel() / m**2
        # log P(in no draw); -inf for a client that fills a distribution
        missed = np.zeros(clients)
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
    """Lay the clients end to end, largest first, and cut the line into m equal parts.

    Algorithm 2. Source: [Fraboni 2023, §3.4].
    """
    order = np.argsort(-units, kind="stable").astype(np.int64)
    order = order[units[order] > 0]
    ends = np.cumsum(m * units[order])
    return SamplingDistributions(order, ends, room=int(units.sum()))


def distributions_by_group(
    units: Ints, groups: Iterable[Ints], m: int
) -> SamplingDistributions:
    """Keep the clients of a group in one distribution, as far as they fit.

    A client with m n_i >= M first fills floor(m n_i / M) distributions alone; only its
    remaining units go on (otherwise the scheme would be biased). The largest groups
    open one distribution each. The clients of the other groups, and units beyond the
    distribution of their own group, fill the remaining room, one distribution after the
    other.

    Source: [Fraboni 2023, Alg. 3], lines 3 to 18.
    """
    room = int(units.sum())
    full, rest = np.divmod(m * units, room)
    alone: list[Segment] = [
        (int(i), room) for i in np.repeat(np.arange(len(units)), full)
    ]
    free = m - len(alone)
    ranked = _ranked_groups(groups, rest)
    distributions: list[list[Segment]] = []
    waiting: list[Segment] = []
    for group in ranked[:free]:
        distribution, left_over = _fill([], group, room)
        distributions.append(distribution)
        waiting += left_over
    for group in ranked[free:]:
        waiting += group
    distributions += [[] for _ in range(free - len(distributions))]
    segments = alone
    for distribution in distributions:
        filled, waiting = _fill(distribution, waiting, room)
        segments += filled
    clients, lengths = np.array(segments, dtype=np.int64).T
    return SamplingDistributions(clients, np.cumsum(lengths), room=room)


Segment: TypeAlias = tuple[int, int]
"""A client, and its number of units in a distribution."""


def _ranked_groups(groups: Iterable[Ints], units: Ints) -> list[list[Segment]]:
    """Return clients with units left by group; the largest group comes first."""
    ranked = []
    for group in groups:
        members = [(int(i), int(units[i])) for i in sorted(group) if units[i]]
        if members:
            ranked.append(members)
    ranked.sort(
        key=lambda members: (-sum(count for _, count in members), members[0][0])
    )
    return ranked


def _fill(
    distribution: list[Segment], waiting: Sequence[Segment], room: int
) -> tuple[list[Segment], list[Segment]]:
    """Add waiting clients until the distribution is full; return it and the rest.

    The last client is split if it does not fit as a whole.
    """
    filled = list(distribution)
    left = room - sum(count for _, count in filled)
    for k, (client, units) in enumerate(waiting):
        if units < left:
            filled.append((client, units))
            left -= units
            continue
        if left:
            filled.append((client, left))
        left_over = list(waiting[k + 1 :])
        if units > left:
            left_over.insert(0, (client, units - left))
        return filled, left_over
    return filled, []


def cohort(drawn: Ints, independent: bool) -> Cohort:
    """Turn m draws into a cohort.

    With ``independent``, every draw is a row with weight 1/m; otherwise every client is
    a row with weight count/m.
    """
    if independent:
        return Cohort(np.sort(drawn), np.full(len(drawn), 1 / len(drawn)))
    clients, counts = np.unique(drawn, return_counts=True)
    return Cohort(clients, counts / len(drawn))


def units_of(setting: Setting, m: int) -> Ints:
    """Return whole units in proportion to importance; the sizes if it is by size."""
    sizes = setting.sizes.astype(np.int64)
    p = setting.importance
    if np.allclose(sizes / sizes.sum(), p, rtol=1e-12, atol=0):
        return checked_sizes(sizes, m)
    return whole_units(p, m)


def whole_units(importance: Floats, m: int) -> Ints:
    """Return whole numbers in proportion to the importance.

    Exact if the importance has a common denominator, otherwise to 1e-12 or better.

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
        from fractions import Fraction  # takes a millisecond to import

        fractions = [Fraction(float(share)).limit_denominator(10**7) for share in p]
        total = lcm(*(fraction.denominator for fraction in fractions))
        rounded = np.round(p * total)
        if total * m < LARGEST and np.allclose(
            p * total, rounded, rtol=1e-12, atol=1e-9
        ):
            return np.asarray(rounded, dtype=np.int64)
    total = LARGEST // (2 * m)
    return np.asarray(np.floor(p * min(total, 2**52)), dtype=np.int64)


def checked_sizes(sizes: Ints, m: int) -> Ints:
    """Return client sizes as units; raises if a size or their sum is invalid."""
    units = np.asarray(sizes)
    require(
        units.ndim == 1 and len(units) > 0,
        "sizes must be a list of whole numbers, one per client",
    )
    whole = np.array_equal(units, np.round(units))
    if not whole or bool((units < 0).any()) or not bool(units.sum() > 0):
        bad_clients = np.flatnonzero(~(units >= 0) | (units != np.round(units)))
        client = bad_clients[0] if len(bad_clients) else 0
        raise InvalidOption(
            f"size of client {client} must be a whole number >= 0, with a sum above 0"
        )
    require(
        m * int(units.sum()) < LARGEST,
        f"{m} x {int(units.sum())} units cannot be counted in 64 bits",
    )
    return units.astype(np.int64)
