"""A gradual passage from one weighting to another."""

from __future__ import annotations

from typing import Any

import numpy as np

from poise.core.errors import require
from poise.core.parts import is_part, part
from poise.core.types import Floats, Setting


@part("weighting", "anneal")
class Anneal:
    """``(1 - t) start + t end`` with ``t = min(1, round/over)``.

    Args:
        start: the weighting of round 0.
        end: the weighting from round ``over`` on.
        over: number of rounds that the passage takes.

    Source: A section 3.2.
    """

    start: Any
    end: Any
    over: int

    def __post_init__(self) -> None:
        for name, weighting in (("start", self.start), ("end", self.end)):
            fits = is_part(weighting) and weighting.slot == "weighting"
            require(fits, f"Anneal: {name} = {weighting!r} is not a weighting")
        require(self.over >= 1, f"Anneal: over must be at least 1 round, not {self.over}")

    @property
    def needs(self) -> frozenset[str]:
        """What either needs."""
        return frozenset(self.start.needs | self.end.needs)

    def fit(self, setting: Setting) -> None:
        """Both must fit."""
        self.start.fit(setting)
        self.end.fit(setting)

    def coefficients(self, base: Floats, **reports: Any) -> Floats:
        """The mixture of this round."""
        t = min(1.0, reports.get("round", 0) / self.over)
        first, last = (w.coefficients(base, **reports) for w in (self.start, self.end))
        return np.asarray((1 - t) * first + t * last, dtype=np.float64)
