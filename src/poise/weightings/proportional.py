"""The weights of FedAvg."""

from __future__ import annotations

from typing import Any

import numpy as np

from poise.core.parts import part
from poise.core.types import Floats, Setting


@part("weighting", "proportional")
class Proportional:
    """``c_i = omega_i``: the sampler's weights as they are.

    They are not renormalised: a scheme with E[omega_i] = p_i stays unbiased even where the weights
    of one round do not sum to one.

    >>> Proportional().coefficients(np.array([0.2, 0.3]))
    array([0.2, 0.3])
    """

    needs = frozenset[str]()

    def fit(self, setting: Setting) -> None:
        """Fits everywhere."""

    def coefficients(self, base: Floats, **reports: Any) -> Floats:
        """The base weights."""
        return np.asarray(base, dtype=np.float64)
