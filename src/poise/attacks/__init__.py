"""Attacks: updates that dishonest clients send instead of their honest ones.

A part of this slot has ``clients``, ``works``, ``fit`` and ``answer`` (see
`poise.core.protocols.Attack`). The engine calls ``answer`` once per dishonest client.
The call sees the model that the client received, the notes that the client kept and, if
the attack ``works``, the client's own honest update (`poise.core.types.AttackerView`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from poise.core.lazy import lazy_names

if TYPE_CHECKING:
    from poise.attacks.free_rider import FreeRider
    from poise.attacks.mimic import Mimic
    from poise.attacks.scaled import Scaled
    from poise.attacks.stale_replay import StaleReplay

__all__ = ["FreeRider", "Mimic", "Scaled", "StaleReplay"]

__getattr__ = lazy_names(
    __name__,
    {
        "FreeRider": "free_rider",
        "Mimic": "mimic",
        "Scaled": "scaled",
        "StaleReplay": "stale_replay",
    },
)
