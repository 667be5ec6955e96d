"""How much each counts: weightings."""

from poise.weightings.anneal import Anneal
from poise.weightings.exp import Exp
from poise.weightings.extreme import Max, Min
from poise.weightings.proportional import Proportional
from poise.weightings.soft import SoftMax, SoftMin
from poise.weightings.switch import Switch

__all__ = ["Anneal", "Exp", "Max", "Min", "Proportional", "SoftMax", "SoftMin", "Switch"]
