"""Channels: how clients encode their updates, and how the server decodes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poise.core.lazy import lazy_names

if TYPE_CHECKING:
    from poise.channels.plain import Plain
    from poise.channels.top_k import TopK

__all__ = ["Plain", "TopK"]

__getattr__ = lazy_names(
    __name__,
    {
        "Plain": "plain",
        "TopK": "top_k",
    },
)
