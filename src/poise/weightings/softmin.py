"""Clients with smaller losses count more, smoothly."""

from __future__ import annotations

from math import isfinite
from typing import Any

import numpy as np

from poise.core.errors import require
from poise.core.parts import part
from poise.core.types import Floats, Setting
from poise.core.weights import Floor, check_floor, finite, gaps, renormalised


@part("weighting", "soft-min")
class SoftMin:
    """``c_i ~ omega_i exp(-(F_i - F_i*)/T)``, summing to one. FedSoftBetter.

    T -> infinity gives the (renormalised) base weights, T -> 0 the client with the smallest loss alone. (D's text plots
    1/T under the name of temperature; here a high temperature is a mild weighting, as in A.)

    Args:
        temperature: T > 0; 0.2 in A.
        floor: F_i*, as in `Max`.

    Source: A section 3.1, D section 2.3.

    >>> SoftMin(temperature=1.0).coefficients(np.array([0.5, 0.5]), loss_before=np.array([3.0, 3.0]))
    array([0.5, 0.5])
    """

    temperature: float
    floor: Floor = 0.0

    needs = frozenset({"loss_before"})

    def __post_init__(self) -> None:
        warm = self.temperature > 0 and isfinite(self.temperature)
        require(warm, f"SoftMin: temperature must be above 0, not {self.temperature}")
        check_floor("SoftMin", self.floor)

    def fit(self, setting: Setting) -> None:
        """Fits everywhere."""

    def coefficients(self, base: Floats, **reports: Any) -> Floats:
        """Base weights times the exponential of the negative loss."""
        clients = reports.get("clients")
        losses = finite("loss_before", reports.get("loss_before"), len(base), clients)
        values = gaps(self.floor, losses, clients, reports.get("lowest_loss"))
        return renormalised(np.asarray(base, dtype=np.float64), -values / self.temperature)
