"""`Identical`: weights that ignore how often each client answers."""

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
    """``c_i`` as if clients were equally fast: a biased baseline.

    ``c_i = M p_i`` under `Asynchronous`, ``p_i`` under `FixedWindow`, ``1/c`` under
    `Buffered`. With unequal times this minimises a surrogate in which fast clients
    count more.

    Source: [Fraboni 2023, §4.5.1, Fig. 4.2].

    >>> Identical().coefficients(np.array([0.25]), identical=np.array([1.0]))
    array([1.])
    """

    needs = frozenset[str]()
    traits = WeightingTraits(reads_updates=False)

    def fit(self, setting: Setting) -> None:
        """Accept every setting."""

    @by_columns
    def coefficients(self, updates: RoundUpdates) -> Floats:
        """Return the clock's identical weights, or base weights without a clock."""
        if updates.identical_weights is None:
            return updates.base_weights
        return np.asarray(updates.identical_weights, dtype=np.float64)

    def mean_coefficients(self, known: LongRun) -> Floats | None:
        """Return the clock's identical weights times the share of rounds per client."""
        if known.base is None or known.heard is None:
            return None
        weights = known.clock.identical_weights(known.base, known.setting.clients)
        return np.asarray(weights * known.heard)
