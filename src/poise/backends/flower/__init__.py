"""Local work on the nodes of a Flower deployment."""

from poise.backends.flower.nodes import Flower

__all__ = ["Flower"]
