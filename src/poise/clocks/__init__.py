"""When it counts: clocks."""

from poise.clocks.synchronous import Synchronous

__all__ = ["Synchronous"]
