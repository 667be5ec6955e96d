"""How much each counts: weightings."""

from poise.weightings.anneal import Anneal
from poise.weightings.exp import Exp
from poise.weightings.max import Max
from poise.weightings.min import Min
from poise.weightings.proportional import Proportional
from poise.weightings.softmax import SoftMax
from poise.weightings.softmin import SoftMin
from poise.weightings.switch import Switch

__all__ = ["Anneal", "Exp", "Max", "Min", "Proportional", "SoftMax", "SoftMin", "Switch"]
