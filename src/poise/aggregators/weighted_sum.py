"""`WeightedSum`: the aggregator of FedAvg."""

from __future__ import annotations

from poise.core.equation import combine
from poise.core.parts import part
from poise.core.traits import AggregatorTraits
from poise.core.types import Floats, Setting
from poise.core.vectors import Stack, Vector


@part("aggregator", "weighted-sum")
class WeightedSum:
    """``D = sum_i omega_i Delta_i``, the default; coefficients may be negative.

    >>> import numpy as np, torch
    >>> WeightedSum().combine(torch.tensor([[2.0, 0.0], [1.0, 3.0]]), np.array([0.5, 2.0]))
    tensor([3., 6.])
    """

    traits = AggregatorTraits(linear=True)

    def fit(self, setting: Setting) -> None:
        """Accept every setting."""

    def combine(self, deltas: Stack, weights: Floats) -> Vector:
        """Return the product of the coefficients with the stack, (d,)."""
        return combine(weights, deltas)
