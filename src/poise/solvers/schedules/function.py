"""`Function`: a learning rate that a function of your own gives."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import cast

from poise.core.errors import InvalidOption
from poise.core.own_functions import allow_function, allow_given
from poise.core.parts import named_function, part
from poise.solvers.schedules.base import Schedule

Factor = Callable[[int], float]
"""n -> the factor of the learning rate."""


@part("schedule", "function")
class Function:
    """The factor ``function(n)``.

    Args:
        function: a function of n = 0, 1, … that returns a number of 0 or more, or its
            name ``package.module:function``.

    >>> Function(lambda n: 1 / (1 + n)).factor(3)
    0.25
    """

    function: str | Factor = named_function()

    def __post_init__(self) -> None:
        if isinstance(self.function, str):
            object.__setattr__(self, "function", allow_function(self.function))
        self.factor(0)
        allow_given(self.function)

    @property
    def constant(self) -> bool:
        """Poise cannot know what the function returns."""
        return False

    def factor(self, n: int) -> float:
        """Return ``function(n)``; raise if it is no number of 0 or more."""
        function = cast(Factor, self.function)
        value = function(n)
        if not isinstance(value, int | float) or not isfinite(value) or value < 0:
            raise InvalidOption(
                f"schedule: {name_of(function)}({n}) returned {value!r}",
                "return a number of 0 or more",
                where=("function",),
            )
        return float(value)


def as_schedule(value: str | Schedule | Factor | None) -> Schedule | None:
    """Return a schedule; a function, or its name ``package.module:function``, is wrapped."""
    if value is None or isinstance(value, Schedule):
        return value
    return Function(value)


def name_of(function: Factor) -> str:
    """Return the name of a function for messages."""
    return getattr(function, "__qualname__", type(function).__name__)
