"""Schedules: factors of the learning rate over rounds or over local steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poise.core.lazy import lazy_names

if TYPE_CHECKING:
    from poise.solvers.schedules.base import Schedule
    from poise.solvers.schedules.constant import Constant
    from poise.solvers.schedules.cosine import Cosine
    from poise.solvers.schedules.function import Function, as_schedule
    from poise.solvers.schedules.linear import Linear
    from poise.solvers.schedules.step import Step
    from poise.solvers.schedules.warm_up import WarmUp

__all__ = [
    "Constant",
    "Cosine",
    "Function",
    "Linear",
    "Schedule",
    "Step",
    "WarmUp",
    "as_schedule",
]

__getattr__ = lazy_names(
    __name__,
    {
        "Constant": "constant",
        "Cosine": "cosine",
        "Function": "function",
        "Linear": "linear",
        "Schedule": "base",
        "Step": "step",
        "WarmUp": "warm_up",
        "as_schedule": "function",
    },
)
