"""Backends: where local work is executed (this process, a Ray cluster, real nodes)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poise.core.lazy import lazy_names

if TYPE_CHECKING:
    from poise.backends.flower import Flower
    from poise.backends.local import Local
    from poise.backends.ray import Ray

__all__ = ["Flower", "Local", "Ray"]

__getattr__ = lazy_names(
    __name__,
    {
        "Flower": "flower",
        "Local": "local",
        "Ray": "ray",
    },
)
