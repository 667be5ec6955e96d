"""Server optimisers: how the server applies the aggregated direction to the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poise.core.lazy import lazy_names

if TYPE_CHECKING:
    from poise.servers.adaptive import Adagrad, Adam, Yogi
    from poise.servers.add import Add
    from poise.servers.momentum import Momentum
    from poise.servers.noisy import Noisy

__all__ = ["Adagrad", "Adam", "Add", "Momentum", "Noisy", "Yogi"]

__getattr__ = lazy_names(
    __name__,
    {
        "Adagrad": "adaptive",
        "Adam": "adaptive",
        "Add": "add",
        "Momentum": "momentum",
        "Noisy": "noisy",
        "Yogi": "adaptive",
    },
)
