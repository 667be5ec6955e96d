"""`Proportional`: the weights of FedAvg."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poise.core.capabilities import LongRun
from poise.core.parts import part
from poise.core.traits import WeightingTraits
from poise.core.types import Floats, Setting
from poise.core.weights import by_columns

if TYPE_CHECKING:
    from poise.core.round_updates import RoundUpdates


@part("weighting", "proportional")
class Proportional:
    """``c_i = omega_i``: the weights of the sampler.

    They are not renormalised, so a scheme with E[omega_i] = p_i stays unbiased even if
    the weights of a round do not sum to one.

    Source: [McMahan 2017, Alg. 1].

    >>> import numpy as np
    >>> Proportional().coefficients(np.array([0.2, 0.3]))
    array([0.2, 0.3])
    """

    needs = frozenset[str]()
    traits = WeightingTraits(proportional=True, reads_updates=False)

    def fit(self, setting: Setting) -> None:
        """Accept every setting."""

    @by_columns
    def coefficients(self, updates: RoundUpdates) -> Floats:
        """Return the base weights."""
        return updates.base_weights

    def mean_coefficients(self, known: LongRun) -> Floats | None:
        """Return the mean base weights."""
        return known.mean_base
