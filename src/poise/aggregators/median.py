"""`Median`: the weighted median of the updates, coordinate by coordinate."""

from __future__ import annotations

import torch

from poise.aggregators.columns import SortedColumns, average_columns
from poise.core.parts import part
from poise.core.traits import AggregatorTraits
from poise.core.types import Floats, Setting
from poise.core.vectors import Stack, Vector


@part("aggregator", "median")
class Median:
    """``D = O median_i(Delta_i)`` per coordinate, weighted; ``O = sum_i omega_i``.

    The lower median of a coordinate is the smallest value v such that the values up to
    v carry at least half of the weight O. The upper median is the largest value v such
    that the values from v on carry at least half. The weighted median is their
    midpoint. The two differ only where a group of clients carries exactly half of the
    weight. Equal weights give `numpy.median`. With m clients of positive weight, a
    share between ``1/2 - m 2^-52`` and ``1/2 + m 2^-52`` counts as half.

    Clients with less than half of the weight cannot move a coordinate beyond the values
    of the other clients.

    Clients of weight 0 do not count. Negative coefficients raise `IncompatibleParts`.
    Without clients of positive weight the direction is 0. The order of the clients
    changes no bit.

    Source: [Yin 2018, Def. 1], for equal weights.

    Example: the weights 1, 2 and 1 sum to 4. In the first coordinate the value 5 brings
    the weight to 3 of 4. In the second, 0 and 2 carry exactly half each, so the median
    is their midpoint 1.

    >>> import numpy as np
    >>> updates = torch.tensor([[9.0, 0.0], [5.0, 2.0], [1.0, 0.0]])
    >>> Median().combine(updates, np.array([1.0, 2.0, 1.0]))
    tensor([20.,  4.])
    """

    traits = AggregatorTraits()

    def fit(self, setting: Setting) -> None:
        """Accept every setting."""

    def combine(self, deltas: Stack, weights: Floats) -> Vector:
        """Return O times the weighted median of every column."""
        return average_columns(self, deltas, weights=weights, average=_median)


def _median(columns: SortedColumns) -> Vector:
    """Return the midpoint of the lower and the upper weighted median."""
    half = columns.reached.new_full((len(columns.values), 1), 0.5)
    first = torch.searchsorted(columns.reached, half - columns.rounding)
    last = torch.searchsorted(columns.reached, half + columns.rounding, right=True)
    lower = columns.values.gather(1, first).squeeze(1)
    upper = columns.values.gather(1, last).squeeze(1)
    return torch.where(lower == upper, lower, lower / 2 + upper / 2)
