"""`WarmUp`: a learning rate that grows first, then follows another schedule."""

from __future__ import annotations

from poise.core.parts import part, part_option
from poise.solvers.schedules.base import Schedule, require_length
from poise.solvers.schedules.function import Factor, as_schedule


@part("schedule", "warm-up")
class WarmUp:
    """``(n + 1) / length`` for n < length, then another schedule from its beginning.

    Args:
        length: rounds, or local steps, of the warm-up.
        then: the schedule, or the function, after the warm-up; None stays at 1.

    >>> from poise.solvers.schedules import Linear
    >>> [WarmUp(2, then=Linear(2)).factor(n) for n in range(5)]
    [0.5, 1.0, 1.0, 0.5, 0.0]
    """

    length: int
    then: str | Schedule | Factor | None = part_option("schedule")

    def __post_init__(self) -> None:
        require_length(self.length, "WarmUp")
        object.__setattr__(self, "then", as_schedule(self.then))

    @property
    def constant(self) -> bool:
        """A warm-up of one round or step changes nothing."""
        after = self.then
        return self.length == 1 and (not isinstance(after, Schedule) or after.constant)

    def factor(self, n: int) -> float:
        """Return the factor at n."""
        if n < self.length:
            return (n + 1) / self.length
        if isinstance(self.then, Schedule):
            return self.then.factor(n - self.length)
        return 1.0
