"""Updates that are too long count less."""

from __future__ import annotations

from typing import Any

import numpy as np

from poise.core.errors import InvalidOption, require
from poise.core.parts import is_part, part
from poise.core.types import Floats, Setting
from poise.weightings.proportional import Proportional


@part("weighting", "clipped")
class Clipped:
    """``c_i = w_i min(1, C/|Delta_i|)``: as if every update had been shortened to length C first; not renormalised.

    What a client adds to the direction is then at most ``w_i C`` long, whatever its data; with a `Noisy` server this is
    DP-FedAvg.

    Args:
        norm: C, above 0; inf clips nothing.
        of: the weighting that gives w_i.

    Source: McMahan et al. 2018, Algorithm 1 (flat clipping); E appendix D.4.

    >>> Clipped(norm=2.0).coefficients(np.array([0.5, 0.5]), norms=np.array([1.0, 8.0]))
    array([0.5  , 0.125])
    """

    norm: float
    of: Any = Proportional()

    def __post_init__(self) -> None:
        require(self.norm > 0, f"Clipped: norm must be above 0, not {self.norm}")
        require(is_part(self.of) and self.of.slot == "weighting", f"Clipped: {self.of!r} is not a weighting")

    @property
    def needs(self) -> frozenset[str]:
        """What the other weighting needs."""
        found: frozenset[str] = self.of.needs
        return found

    def fit(self, setting: Setting) -> None:
        """The other weighting must fit."""
        self.of.fit(setting)

    def coefficients(self, base: Floats, **reports: Any) -> Floats:
        """The other weighting's, times C/|Delta_i| where the update is longer than C."""
        norms = reports.get("norms")
        if norms is None:
            raise InvalidOption("Clipped: the norms of the updates are not given", "norms=, one per row")
        length = np.asarray(norms, dtype=np.float64)
        factor = np.ones_like(length)
        np.divide(self.norm, length, out=factor, where=length > self.norm)
        return np.asarray(self.of.coefficients(base, **reports) * factor, dtype=np.float64)
