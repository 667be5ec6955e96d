"""Aggregators: how the server combines the weighted updates into one direction."""

from poise.aggregators.median import Median
from poise.aggregators.trimmed_mean import TrimmedMean
from poise.aggregators.weighted_sum import WeightedSum

__all__ = ["Median", "TrimmedMean", "WeightedSum"]
