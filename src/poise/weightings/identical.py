"""Weights that ignore how often each client answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from poise.core.capabilities import LongRun
from poise.core.parts import part
from poise.core.traits import WeightingTraits
from poise.core.types import Floats, Setting
from poise.core.weights import by_columns

if TYPE_CHECKING:
    from poise.core.round_updates import RoundUpdates


@part("weighting", "identical")
class Identical:
    """The biased baseline of E Fig. 4.2: every answer counts as if all clients were equally fast.

    ``c_i = M p_i`` when every answer counts at once, ``p_i`` in windows, ``1/c`` in buffers of c.
    Under a clock with unequal times this minimises a surrogate in which fast clients count more.

    Source: E section 4.5.1.

    >>> Identical().coefficients(np.array([0.25]), identical=np.array([1.0]))
    array([1.])
    """

    needs = frozenset[str]()
    traits = WeightingTraits(reads_updates=False)

    def fit(self, setting: Setting) -> None:
        """Fits everywhere."""

    @by_columns
    def coefficients(self, updates: RoundUpdates) -> Floats:
        """The clock's weights that ignore times; the base weights where no clock is at hand."""
        if updates.identical_weights is None:
            return updates.base_weights
        return np.asarray(updates.identical_weights, dtype=np.float64)

    def mean_coefficients(self, known: LongRun) -> Floats | None:
        """The clock's weights, as often as each client is heard."""
        if known.base is None or known.heard is None:
            return None
        return np.asarray(
            known.clock.identical_weights(known.base, known.setting.clients) * known.heard
        )
