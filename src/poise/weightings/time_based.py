"""Weights that make up for how often each client answers."""

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
    """``c_i = d_i``, the weight with which the clock's scheme is unbiased: slow clients count more
    per answer.

    With times that are given, d_i is the clock's closed form for its durations. Estimated, ``c_i =
    p_i (n + 1)/k_i`` after k_i answers of client i in n + 1 aggregations: the long-run share of
    aggregations that it takes part in, as the server sees it.

    Args:
        times: ``given`` (the clock's durations are right) or ``estimated`` from the answers so far.

    Source: E section 4.4, eq. 4.36 and 4.40.

    >>> TimeBased().coefficients(np.array([0.5]), balance=np.array([3.0]))
    array([1.5])
    """

    times: Literal["given", "estimated"] = "given"

    @property
    def needs(self) -> frozenset[str]:
        """The clock's d_i, where times are given."""
        return frozenset({"balance"}) if self.times == "given" else frozenset()

    @property
    def traits(self) -> WeightingTraits:
        """Weights by times alone."""
        return WeightingTraits(reads_updates=False, times=self.times)

    def fit(self, setting: Setting) -> None:
        """Fits every federation; whether the clock and the sampler fit is checked when a run is
        composed.
        """

    @by_columns
    def coefficients(self, updates: RoundUpdates) -> Floats:
        """Base weights times d_i/p_i; or importance over the share of aggregations so far."""
        if self.times == "given":
            return (
                updates.base_weights
                if updates.balance is None
                else updates.base_weights * updates.balance
            )
        often = updates.participations
        if often is None:
            return updates.base_weights
        require(
            bool((often > 0).all()), "TimeBased: a client that answers has answered at least once"
        )
        if not len(updates):
            return updates.base_weights
        _, which, counts = np.unique(updates.clients, return_inverse=True, return_counts=True)
        rows = counts[which].astype(np.float64)  # whoever worked twice shares one weight
        return np.asarray(
            updates.importance * (updates.round + 1) / (often * rows), dtype=np.float64
        )

    def mean_coefficients(self, known: LongRun) -> Floats | None:
        """The importance; where nobody is left behind, given times leave the base weights as they
        are.
        """
        late = traits_of(known.clock, ClockTraits).leaves_clients_behind
        if late or self.times == "estimated":
            return known.importance
        return known.mean_base
