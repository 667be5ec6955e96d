"""`TimeBased`: weights that correct for how often each client answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from poise.core.capabilities import LongRun
from poise.core.errors import require
from poise.core.parts import part
from poise.core.traits import ClockTraits, WeightingTraits, traits_of
from poise.core.types import Floats, Setting
from poise.core.weights import by_columns

if TYPE_CHECKING:
    from poise.core.round_updates import RoundUpdates


@part("weighting", "time-based")
class TimeBased:
    """``c_i = d_i``, the weight that makes the clock's scheme unbiased.

    Slow clients count more per answer. With given times, d_i is the clock's closed form
    for its durations. With estimated times, ``c_i = p_i (n + 1)/k_i`` after k_i answers
    of client i in n + 1 aggregations: the server counts how often the client takes
    part. With elapsed times, ``c_i = p_i (n - rho_i + 1)`` for an answer in aggregation
    n from version rho_i: the answer counts for every aggregation that it took. If
    every client starts again at once and all answers count, the weights of client i in
    the first n + 1 aggregations sum to p_i times n + 1 whenever it answers: for any
    durations, and for windows that change their length. poise refuses samplers and
    clocks that leave clients or answers out.

    Args:
        times: ``given`` (from the durations of the clock), ``estimated`` (from the
            number of answers) or ``elapsed`` (from the versions of the answers).

    Source: [Fraboni 2023, §4.4, eq. 4.36 and 4.40]; elapsed times are ours, after
    Property 4.2 there.

    >>> TimeBased().coefficients(np.array([0.5]), balance=np.array([3.0]))
    array([1.5])
    """

    times: Literal["given", "estimated", "elapsed"] = "given"

    @property
    def needs(self) -> frozenset[str]:
        """The clock's d_i, if times are given."""
        if self.times == "given":
            return frozenset({"balance"})
        return frozenset()

    @property
    def traits(self) -> WeightingTraits:
        """Declare weights that depend on times alone."""
        return WeightingTraits(reads_updates=False, times=self.times)

    def fit(self, setting: Setting) -> None:
        """Accept every federation; composing a run checks the clock and the sampler."""

    @by_columns
    def coefficients(self, updates: RoundUpdates) -> Floats:
        """Return base weights times d_i/p_i, or importance over aggregation shares."""
        if self.times == "given":
            if updates.balance is None:
                return updates.base_weights
            return updates.base_weights * updates.balance
        if self.times == "elapsed":
            return np.asarray(updates.base_weights * (updates.staleness + 1.0))
        participations = updates.participations
        if participations is None:
            return updates.base_weights
        require(
            bool((participations > 0).all()),
            "TimeBased: participations must be at least 1 for a client that answers",
        )
        if not len(updates):
            return updates.base_weights
        _, inverse, counts = np.unique(
            updates.clients, return_inverse=True, return_counts=True
        )
        # the rows of one client share its weight
        rows = counts[inverse].astype(np.float64)
        weights = updates.importance * (updates.round + 1) / (participations * rows)
        return np.asarray(weights, dtype=np.float64)

    def mean_coefficients(self, known: LongRun) -> Floats | None:
        """Return the importance, or mean base weights if the times correct nothing.

        Given times correct nothing under a clock that leaves no client behind.
        """
        leaves_behind = traits_of(known.clock, ClockTraits).leaves_clients_behind
        if self.times == "elapsed" and not leaves_behind:
            return known.mean_base
        if leaves_behind or self.times == "estimated":
            return known.importance
        return known.mean_base
