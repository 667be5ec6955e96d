"""Where work is executed."""

from poise.backends.local import Local

__all__ = ["Local"]
