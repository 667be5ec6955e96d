"""Forgetting: certified client unlearning (IFU, SIFU), its baselines, and certificates that can be checked.

`poise.unlearn` is the operation; here are its pieces. Names load when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from poise.unlearning.accounting import privacy_spent
    from poise.unlearning.budget import Budget
    from poise.unlearning.counting import sensitivity
    from poise.unlearning.examining import examine
    from poise.unlearning.gaussian import epsilon_at, privacy_curve, sensitivity_budget
    from poise.unlearning.previewing import preview
    from poise.unlearning.verifying import verify

_HOMES = {
    "Budget": "budget",
    "epsilon_at": "gaussian",
    "examine": "examining",
    "preview": "previewing",
    "privacy_curve": "gaussian",
    "privacy_spent": "accounting",
    "sensitivity": "counting",
    "sensitivity_budget": "gaussian",
    "verify": "verifying",
}

__all__ = [
    "Budget", "epsilon_at", "examine", "preview", "privacy_curve", "privacy_spent", "sensitivity",
    "sensitivity_budget", "verify",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"poise.unlearning.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'poise.unlearning' has no attribute {name!r}")
