"""`Schedule`, the protocol of learning-rate schedules, and checks of their options."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from poise.core.errors import require


@runtime_checkable
class Schedule(Protocol):
    """The factor of the learning rate in round n, or at local step n of a round."""

    @property
    def constant(self) -> bool:
        """Whether the factor is 1 for every n."""

    def factor(self, n: int) -> float:
        """Return the factor at n = 0, 1, …; 0 or more."""


def require_length(length: int, part: str) -> None:
    """Raise unless a schedule takes at least one round or step."""
    require(
        length >= 1,
        f"{part}: length must be at least 1, not {length}",
        where="length",
    )


def require_factor(value: float, part: str, option: str) -> None:
    """Raise unless a factor of the learning rate is 0 or more, and finite."""
    require(
        0 <= value < float("inf"),
        f"{part}: {option} must be 0 or more, not {value}",
        where=option,
    )
