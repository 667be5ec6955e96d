"""Who works: client samplers."""

from poise.samplers.full import Full
from poise.samplers.uniform import Uniform

__all__ = ["Full", "Uniform"]
