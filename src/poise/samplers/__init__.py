"""Samplers: which clients work in a round, and their base weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poise.core.lazy import lazy_names

if TYPE_CHECKING:
    from poise.samplers.binomial import Binomial
    from poise.samplers.budgeted import Budgeted
    from poise.samplers.clustered_by_similarity import ClusteredBySimilarity
    from poise.samplers.clustered_by_size import ClusteredBySize
    from poise.samplers.covering import Covering
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
    "Covering",
    "Full",
    "Optimal",
    "Poisson",
    "PowerOfChoice",
    "Target",
    "Uniform",
]

__getattr__ = lazy_names(
    __name__,
    {
        "Binomial": "binomial",
        "Budgeted": "budgeted",
        "ClusteredBySimilarity": "clustered_by_similarity",
        "ClusteredBySize": "clustered_by_size",
        "Covering": "covering",
        "Full": "full",
        "MD": "md",
        "Optimal": "optimal",
        "Poisson": "poisson",
        "PowerOfChoice": "power_of_choice",
        "Target": "target",
        "Uniform": "uniform",
    },
)
