"""Samplers: which clients work in a round, and their base weights."""

from poise.samplers.binomial import Binomial
from poise.samplers.budgeted import Budgeted
from poise.samplers.clustered_by_similarity import ClusteredBySimilarity
from poise.samplers.clustered_by_size import ClusteredBySize
from poise.samplers.full import Full
from poise.samplers.md import MD
from poise.samplers.optimal import Optimal
from poise.samplers.poisson import Poisson
from poise.samplers.power_of_choice import PowerOfChoice
from poise.samplers.target import Target
from poise.samplers.uniform import Uniform

__all__ = [
    "MD",
    "Binomial",
    "Budgeted",
    "ClusteredBySimilarity",
    "ClusteredBySize",
    "Full",
    "Optimal",
    "Poisson",
    "PowerOfChoice",
    "Target",
    "Uniform",
]
