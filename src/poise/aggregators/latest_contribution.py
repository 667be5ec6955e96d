"""`LatestContribution`: every aggregation uses the latest answer of every client."""

from __future__ import annotations

from poise.core.equation import combine
from poise.core.parts import part
from poise.core.traits import AggregatorTraits
from poise.core.types import Floats, Setting
from poise.core.vectors import Stack, Vector


@part("aggregator", "latest-contribution")
class LatestContribution:
    """``D = sum_i p_i kappa_i Delta_i`` over all clients that have answered so far.

    ``Delta_i`` is the latest answer of client i, also if it came many aggregations ago,
    and kappa_i is its coefficient over its base weight then: 1 for `Proportional`. Slow
    and absent clients keep their share, and nobody has to know their times: use
    `Proportional`, not `TimeBased`, whose weights make up for rare answers a second
    time. A client that has not answered yet, or that the audit excludes, does not
    count. With all clients in every aggregation it is `WeightedSum`.

    Old answers push the model again and again, so learning rates must be smaller, by
    about the number of aggregations between two answers. The server keeps one vector
    per client. Batch-norm statistics and other buffers move by new answers alone.

    Source: [Gu 2021], named in [Fraboni 2023, §4.4.5].

    The engine gives ``combine`` the answers that it keeps, with their weights:

    >>> import numpy as np, torch
    >>> kept = torch.tensor([[2.0, 0.0], [1.0, 3.0]])
    >>> LatestContribution().combine(kept, np.array([0.5, 0.5]))
    tensor([1.5000, 1.5000])
    """

    traits = AggregatorTraits(latest=True)

    def fit(self, setting: Setting) -> None:
        """Accept every setting."""

    def combine(self, deltas: Stack, weights: Floats) -> Vector:
        """Return the product of the weights with the stack, (d,)."""
        return combine(weights, deltas)
