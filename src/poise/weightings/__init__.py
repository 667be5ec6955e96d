"""Weightings: the coefficient of each update in the aggregation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poise.core.lazy import lazy_names

if TYPE_CHECKING:
    from poise.weightings.adjacency import Adjacency
    from poise.weightings.anneal import Anneal
    from poise.weightings.clipped import Clipped
    from poise.weightings.discount import Discount
    from poise.weightings.exp import Exp
    from poise.weightings.extreme import Max, Min
    from poise.weightings.identical import Identical
    from poise.weightings.per_step import PerStep
    from poise.weightings.proportional import Proportional
    from poise.weightings.soft import SoftMax, SoftMin
    from poise.weightings.switch import Switch
    from poise.weightings.time_based import TimeBased

__all__ = [
    "Adjacency",
    "Anneal",
    "Clipped",
    "Discount",
    "Exp",
    "Identical",
    "Max",
    "Min",
    "PerStep",
    "Proportional",
    "SoftMax",
    "SoftMin",
    "Switch",
    "TimeBased",
]

__getattr__ = lazy_names(
    __name__,
    {
        "Adjacency": "adjacency",
        "Anneal": "anneal",
        "Clipped": "clipped",
        "Discount": "discount",
        "Exp": "exp",
        "Identical": "identical",
        "Max": "extreme",
        "Min": "extreme",
        "PerStep": "per_step",
        "Proportional": "proportional",
        "SoftMax": "soft",
        "SoftMin": "soft",
        "Switch": "switch",
        "TimeBased": "time_based",
    },
)
