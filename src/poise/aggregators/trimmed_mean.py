"""`TrimmedMean`: the mean of the updates without each coordinate's extreme values."""

from __future__ import annotations

import torch

from poise.aggregators.columns import SortedColumns, average_columns
from poise.core.equation import combine
from poise.core.errors import require
from poise.core.parts import part
from poise.core.traits import AggregatorTraits
from poise.core.types import Floats, Setting
from poise.core.vectors import Stack, Vector

# the largest share cut off at each end; a larger one is the median
LARGEST_CUT = 0.5 - 1e-9


@part("aggregator", "trimmed-mean")
class TrimmedMean:
    """``D = O mean_i(Delta_i)`` without extremes per coordinate; ``O = sum_i omega_i``.

    In every coordinate the aggregator sorts the clients by value and cuts off ``share``
    times the weight O at each end. The direction is O times the weighted mean of the
    rest. A client across a cut counts with the part of its weight inside. Clients with
    less than ``share`` of the weight cannot move a coordinate beyond the values of the
    other clients.

    ``TrimmedMean(0)`` is `WeightedSum`, bit for bit. With a share above 0, clients of
    weight 0 do not count, negative coefficients raise `IncompatibleParts`, and the
    direction is 0 without clients of positive weight. The order of the clients changes
    no bit. With m clients of positive weight the cut is wider than ``share`` by
    ``m 2^-52``, so no rounding error lets an extreme value in.

    Args:
        share: the part of the weight to cut off at each end, at least 0 and below 0.5.

    Source: [Yin 2018, Def. 2], for equal weights.

    Example: the weights 1, 2 and 1 sum to 4, and 1 is cut off at each end. The first
    coordinate keeps 5 with weight 2. The second keeps 0 and 2 with weight 1 each, so
    the mean is 1.

    >>> import numpy as np
    >>> updates = torch.tensor([[9.0, 0.0], [5.0, 2.0], [1.0, 0.0]])
    >>> TrimmedMean(0.25).combine(updates, np.array([1.0, 2.0, 1.0]))
    tensor([20.,  4.])
    """

    share: float

    def __post_init__(self) -> None:
        inside = 0 <= self.share < 0.5
        require(
            inside,
            f"TrimmedMean: share must be in [0, 0.5), not {self.share}",
            where="share",
        )

    @property
    def traits(self) -> AggregatorTraits:
        """Declare the aggregator linear if it cuts nothing off."""
        return AggregatorTraits(linear=self.share == 0)

    def fit(self, setting: Setting) -> None:
        """Accept every setting."""

    def combine(self, deltas: Stack, weights: Floats) -> Vector:
        """Return O times the trimmed mean of every column."""
        if self.share == 0:
            return combine(weights, deltas)
        return average_columns(self, deltas, weights=weights, average=self._mean)

    def _mean(self, columns: SortedColumns) -> Vector:
        """Return the mean of the values between the cuts, in double precision."""
        cut = min(self.share + columns.rounding, LARGEST_CUT)
        inside = columns.reached.clamp_(cut, 1 - cut)
        weights = torch.diff(
            inside, dim=1, prepend=inside.new_full((len(inside), 1), cut)
        )
        return (weights.mul_(columns.values).sum(dim=1) / (1 - 2 * cut)).to(
            columns.values
        )
