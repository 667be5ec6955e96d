"""What dishonest clients send instead of their work.

A part of this slot has ``clients``, ``works``, ``fit`` and ``answer`` (see
`poise.core.protocols.Attack`). Its clients are asked one at a time and see the model they received,
what they put aside themselves and, where the attack ``works``, their own honest update: nothing
else (`poise.core.types.AttackerView`).
"""

from poise.attacks.free_rider import FreeRider
from poise.attacks.mimic import Mimic
from poise.attacks.scaled import Scaled
from poise.attacks.stale_replay import StaleReplay

__all__ = ["FreeRider", "Mimic", "Scaled", "StaleReplay"]
