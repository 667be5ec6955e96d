"""How much each counts: weightings."""

from poise.weightings.proportional import Proportional

__all__ = ["Proportional"]
