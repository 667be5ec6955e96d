"""How the aggregated direction is applied: server optimisers."""

from poise.servers.add import Add

__all__ = ["Add"]
