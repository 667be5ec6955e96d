"""Clients with larger (or smaller) losses count more, smoothly."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from poise.core.errors import require
from poise.core.parts import part
from poise.core.types import Floats, Setting
from poise.core.weights import Floor, check_floor, loss_gaps, renormalised


@dataclass(frozen=True)
class _Soft:
    """``omega_i exp(sign (F_i - F_i*)/T)``, summing to one."""

    temperature: float
    floor: Floor = 0.0

    needs = frozenset({"loss_before"})
    sign = 1.0

    def __post_init__(self) -> None:
        name, warm = type(self).__name__, self.temperature > 0 and isfinite(self.temperature)
        require(warm, f"{name}: temperature must be above 0, not {self.temperature}")
        check_floor(name, self.floor)

    def fit(self, setting: Setting) -> None:
        """Fits everywhere."""

    def coefficients(self, base: Floats, **reports: Any) -> Floats:
        """Base weights times an exponential of the loss."""
        exponents = self.sign * loss_gaps(self.floor, len(base), reports) / self.temperature
        return renormalised(np.asarray(base, dtype=np.float64), exponents)


@part("weighting", "soft-max")
class SoftMax(_Soft):
    """``c_i ~ omega_i exp((F_i - F_i*)/T)``, summing to one. FedSoftWorse, FedSoftMax.

    T -> infinity gives the (renormalised) base weights, T -> 0 the client with the largest loss alone. (D's text plots
    1/T under the name of temperature; here a high temperature is a mild weighting, as in A.)

    Args:
        temperature: T > 0; 0.2 in A.
        floor: F_i*, as in `Max`.

    Source: A section 3.1, D section 2.3.

    >>> SoftMax(temperature=1.0).coefficients(np.array([0.5, 0.5]), loss_before=np.array([3.0, 3.0]))
    array([0.5, 0.5])
    """


@part("weighting", "soft-min")
class SoftMin(_Soft):
    """``c_i ~ omega_i exp(-(F_i - F_i*)/T)``, summing to one. FedSoftBetter, the opposite of `SoftMax`.

    Args:
        temperature: T > 0; 0.2 in A.
        floor: F_i*, as in `Max`.

    Source: A section 3.1.

    >>> SoftMin(temperature=1.0).coefficients(np.array([0.5, 0.5]), loss_before=np.array([3.0, 3.0]))
    array([0.5, 0.5])
    """

    sign = -1.0
