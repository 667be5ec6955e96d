"""Weights that ignore how often each client answers."""

from __future__ import annotations

from typing import Any

import numpy as np

from poise.core.parts import part
from poise.core.types import Floats, Setting


@part("weighting", "identical")
class Identical:
    """The biased baseline of E Fig. 4.2: every answer counts as if all clients were equally fast.

    ``c_i = M p_i`` when every answer counts at once, ``p_i`` in windows, ``1/c`` in buffers of c. Under a clock with
    unequal times this minimises a surrogate in which fast clients count more.

    Source: E section 4.5.1.

    >>> Identical().coefficients(np.array([0.25]), identical=np.array([1.0]))
    array([1.])
    """

    needs = frozenset[str]()

    def fit(self, setting: Setting) -> None:
        """Fits everywhere."""

    def coefficients(self, base: Floats, **reports: Any) -> Floats:
        """The clock's weights that ignore times; the base weights where no clock is at hand."""
        identical = reports.get("identical")
        return np.asarray(base if identical is None else identical, dtype=np.float64)
