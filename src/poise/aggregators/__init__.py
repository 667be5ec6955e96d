"""Aggregators: how the server combines the weighted updates into one direction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poise.core.lazy import lazy_names

if TYPE_CHECKING:
    from poise.aggregators.latest_contribution import LatestContribution
    from poise.aggregators.median import Median
    from poise.aggregators.trimmed_mean import TrimmedMean
    from poise.aggregators.weighted_sum import WeightedSum

__all__ = ["LatestContribution", "Median", "TrimmedMean", "WeightedSum"]

__getattr__ = lazy_names(
    __name__,
    {
        "LatestContribution": "latest_contribution",
        "Median": "median",
        "TrimmedMean": "trimmed_mean",
        "WeightedSum": "weighted_sum",
    },
)
