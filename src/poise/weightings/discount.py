"""Old answers count less."""

from __future__ import annotations

from math import isfinite
from typing import Any, Literal

import numpy as np

from poise.core.errors import require
from poise.core.parts import is_part, part
from poise.core.types import Floats, Setting


@part("weighting", "discount")
class Discount:
    """``c_i = s(n - rho_i) w_i``: another weighting times a factor that falls with staleness; not renormalised.

    ``polynomial``: s(t) = (1 + t)^-a. ``hinge``: s(t) = 1 up to t = b, then 1/(a (t - b) + 1).

    Args:
        of: the weighting that is discounted.
        kind: ``polynomial`` or ``hinge``.
        a: how fast it falls, > 0.
        b: staleness without a discount (hinge).

    Source: C. Xie et al. 2019 (FedAsync).

    >>> from poise.weightings import Proportional
    >>> Discount(Proportional()).coefficients(np.ones(2), versions=np.array([5, 2]), round=5)
    array([1. , 0.5])
    """

    of: Any
    kind: Literal["polynomial", "hinge"] = "polynomial"
    a: float = 0.5
    b: float = 4.0

    def __post_init__(self) -> None:
        require(is_part(self.of) and self.of.slot == "weighting", f"Discount: {self.of!r} is not a weighting")
        require(self.a > 0 and isfinite(self.a), f"Discount: a must be above 0, not {self.a}")
        require(self.b >= 0 and isfinite(self.b), f"Discount: b must be 0 or more, not {self.b}")

    @property
    def needs(self) -> frozenset[str]:
        """What the discounted weighting needs."""
        found: frozenset[str] = self.of.needs
        return found

    def fit(self, setting: Setting) -> None:
        """The discounted weighting must fit."""
        self.of.fit(setting)

    def coefficients(self, base: Floats, **reports: Any) -> Floats:
        """The other weighting's, times the factor."""
        if reports.get("versions") is None or reports.get("round") is None:
            return np.asarray(self.of.coefficients(base, **reports), dtype=np.float64)
        stale = reports["round"] - np.asarray(reports["versions"], dtype=np.float64)
        if self.kind == "polynomial":
            factor = (1 + stale) ** -self.a
        else:
            factor = 1 / (self.a * np.maximum(stale - self.b, 0.0) + 1)
        return np.asarray(self.of.coefficients(base, **reports) * factor, dtype=np.float64)
