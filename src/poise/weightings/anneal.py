"""`Anneal`: a gradual transition from one weighting to another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from poise.core.errors import require
from poise.core.parts import is_part, part
from poise.core.protocols import Weighting
from poise.core.traits import WeightingTraits, traits_of
from poise.core.types import Floats, Setting
from poise.core.weights import by_columns, weigh
from poise.weightings.renumbering import inner_for

if TYPE_CHECKING:
    from poise.core.round_updates import RoundUpdates


@part("weighting", "anneal")
class Anneal:
    """``c_i = (1 - t) start_i + t end_i`` with ``t = min(1, round/over)``.

    Args:
        start: the weighting of round 0.
        end: the weighting from round ``over`` on.
        over: length of the transition in rounds.

    Source: [Mansour 2022, §3.2].

    >>> from poise.weightings import Max, Proportional
    >>> Anneal(Proportional(), Max(1), over=4).coefficients(
    ...     np.array([0.5, 0.5]), loss_before=np.array([1.0, 2.0]), round=1
    ... )
    array([0.375, 0.625])
    """

    start: Any
    end: Any
    over: int

    def __post_init__(self) -> None:
        for name, weighting in (("start", self.start), ("end", self.end)):
            fits = is_part(weighting) and weighting.slot == "weighting"
            require(
                fits, f"Anneal: {name} = {weighting!r} is not a weighting", where=name
            )
        require(
            self.over >= 1,
            f"Anneal: over must be at least 1 round, not {self.over}",
            where="over",
        )

    @property
    def needs(self) -> frozenset[str]:
        """The reports that either weighting needs."""
        return frozenset(self.start.needs | self.end.needs)

    @property
    def traits(self) -> WeightingTraits:
        """Declare whether either reads the updates or makes up for local steps."""
        ends = [traits_of(w, WeightingTraits) for w in (self.start, self.end)]
        return WeightingTraits(
            reads_updates=any(end.reads_updates for end in ends),
            per_step=any(end.per_step for end in ends),
        )

    @property
    def finally_used(self) -> Weighting:
        """The weighting at the end of the transition."""
        last: Weighting = self.end
        return last

    def for_clients(self, stay: Sequence[int]) -> Self:
        """Return both weightings for the clients that stay."""
        return replace(
            self, start=inner_for(self.start, stay), end=inner_for(self.end, stay)
        )

    def fit(self, setting: Setting) -> None:
        """Refuse settings that either weighting refuses."""
        self.start.fit(setting)
        self.end.fit(setting)

    @by_columns
    def coefficients(self, updates: RoundUpdates) -> Floats:
        """Return the mixture of this round."""
        t = min(1.0, updates.round / self.over)
        first = weigh(self.start, updates)
        last = weigh(self.end, updates)
        return np.asarray((1 - t) * first + t * last, dtype=np.float64)
