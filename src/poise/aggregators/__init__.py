"""How the weighted updates become one direction: aggregators."""

from poise.aggregators.median import Median
from poise.aggregators.trimmed_mean import TrimmedMean
from poise.aggregators.weighted_sum import WeightedSum

__all__ = ["Median", "TrimmedMean", "WeightedSum"]
