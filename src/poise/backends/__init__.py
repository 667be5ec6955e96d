"""Backends: where local work is executed (this process, a Ray cluster, real nodes)."""

from poise.backends.flower import Flower
from poise.backends.local import Local
from poise.backends.ray import Ray

__all__ = ["Flower", "Local", "Ray"]
