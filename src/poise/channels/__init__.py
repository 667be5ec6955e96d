"""Channels: how clients encode their updates, and how the server decodes them."""

from poise.channels.plain import Plain
from poise.channels.top_k import TopK

__all__ = ["Plain", "TopK"]
