"""Personal layers: the entries of the model that stay with each client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poise.core.lazy import lazy_names

if TYPE_CHECKING:
    from poise.personal.batch_norm import BatchNorm
    from poise.personal.layers import Layers

__all__ = ["BatchNorm", "Layers"]

__getattr__ = lazy_names(
    __name__,
    {
        "BatchNorm": "batch_norm",
        "Layers": "layers",
    },
)
