"""The median of the updates, coordinate by coordinate."""

from __future__ import annotations

import torch

from poise.aggregators.columns import SortedColumns, average_columns
from poise.core.parts import part
from poise.core.traits import AggregatorTraits
from poise.core.types import Floats, Setting
from poise.core.vectors import Stack, Vector


@part("aggregator", "median")
class Median:
    """``D = O median_i(Delta_i)``, coordinate by coordinate, weighted; ``O = sum_i omega_i``.

    The lower median of a coordinate is the smallest value such that it and all smaller ones have
    at least half of the weight O. The upper median is the largest value such that it and all larger
    ones have at least half. The weighted median is their midpoint. The two differ only where some
    of the clients have exactly half of the weight. Equal weights give the median of `numpy.median`.
    Half is half up to rounding: with m clients of positive weight, a part of the weight between
    ``1/2 - m 2^-52`` and ``1/2 + m 2^-52`` counts as half.

    Clients with less than half of the weight cannot move a coordinate beyond the values of the
    other clients.

    Clients of weight 0 do not count. Negative coefficients are refused. Without clients of positive
    weight the direction is 0. The order of the clients changes no bit.

    Source: [Yin 2018, Def. 1], for equal weights.

    The weights 1, 2 and 1 have the sum 4. First coordinate: 5 is reached at 3 of 4. Second: 0 and 2
    have exactly half each, so the midpoint 1 counts.

    >>> import numpy as np
    >>> updates = torch.tensor([[9.0, 0.0], [5.0, 2.0], [1.0, 0.0]])
    >>> Median().combine(updates, np.array([1.0, 2.0, 1.0]))
    tensor([20.,  4.])
    """

    traits = AggregatorTraits()

    def fit(self, setting: Setting) -> None:
        """Fits everywhere."""

    def combine(self, deltas: Stack, weights: Floats) -> Vector:
        """O times the weighted median of every column."""
        return average_columns(self, deltas, weights=weights, average=_median)


def _median(columns: SortedColumns) -> Vector:
    """The midpoint of the lower and the upper weighted median."""
    half = columns.reached.new_full((len(columns.values), 1), 0.5)
    first = torch.searchsorted(columns.reached, half - columns.rounding)
    last = torch.searchsorted(columns.reached, half + columns.rounding, right=True)
    lower = columns.values.gather(1, first).squeeze(1)
    upper = columns.values.gather(1, last).squeeze(1)
    return torch.where(lower == upper, lower, lower / 2 + upper / 2)
