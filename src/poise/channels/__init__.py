"""What happens to an update on its way from client to server: channels."""

from poise.channels.plain import Plain
from poise.channels.top_k import TopK

__all__ = ["Plain", "TopK"]
