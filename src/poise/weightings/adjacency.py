"""`Adjacency`: clients that resemble many others count more."""

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


@part("weighting", "adjacency")
class Adjacency:
    """``c_i = omega_i a_i / p_i``, a_i = degree_i / sum of degrees in the graph.

    If all clients work, c_i = a_i; with an unbiased sampler the mean of c_i is a_i.
    Clients that resemble many others count more, outliers less.

    Source: [Buttaci 2024, §4.3, Alg. 2].

    >>> Adjacency().coefficients(
    ...     np.array([0.5]), importance=np.array([0.25]), adjacency=np.array([0.2])
    ... )
    array([0.4])
    """

    needs = frozenset({"adjacency"})
    traits = WeightingTraits(reads_updates=False, by_similarity=True)

    def fit(self, setting: Setting) -> None:
        """Refuse settings without a similarity graph."""
        setting.neighbours()

    @by_columns
    def coefficients(self, updates: RoundUpdates) -> Floats:
        """Return the base weights with the degree in place of the importance."""
        if updates.adjacency is None:
            return updates.base_weights
        p = np.asarray(updates.importance, dtype=np.float64)
        relative = np.divide(updates.adjacency, p, out=np.zeros_like(p), where=p > 0)
        return np.asarray(updates.base_weights * relative)

    def mean_coefficients(self, known: LongRun) -> Floats | None:
        """Return the mean base weights with the degree in place of the importance."""
        if known.mean_base is None:
            return None
        p = known.importance
        degree = known.setting.neighbours().sum(axis=1)
        relative = np.divide(degree, p, out=np.zeros_like(p), where=p > 0)
        return np.asarray(known.mean_base * relative)
