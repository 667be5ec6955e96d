"""Where work is executed."""

from poise.backends.flower import Flower
from poise.backends.local import Local
from poise.backends.ray import Ray

__all__ = ["Flower", "Local", "Ray"]
