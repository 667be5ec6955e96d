"""Optimisers: how a gradient becomes the direction of a local step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poise.core.lazy import lazy_names

if TYPE_CHECKING:
    from poise.solvers.optimizers.adagrad import Adagrad
    from poise.solvers.optimizers.adam import Adam
    from poise.solvers.optimizers.base import Optimizer
    from poise.solvers.optimizers.momentum import Momentum
    from poise.solvers.optimizers.rmsprop import RMSprop

__all__ = ["Adagrad", "Adam", "Momentum", "Optimizer", "RMSprop"]

__getattr__ = lazy_names(
    __name__,
    {
        "Adagrad": "adagrad",
        "Adam": "adam",
        "Momentum": "momentum",
        "Optimizer": "base",
        "RMSprop": "rmsprop",
    },
)
