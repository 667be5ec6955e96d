"""`Linear`: a learning rate on a straight line."""

from __future__ import annotations

from poise.core.parts import part
from poise.solvers.schedules.base import require_factor, require_length


@part("schedule", "linear")
class Linear:
    """``start + (end - start) n / length``, then ``end``: PyTorch's LinearLR.

    Args:
        length: rounds, or local steps, until the end.
        start: the first factor.
        end: the last factor.

    >>> [Linear(4).factor(n) for n in range(6)]
    [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
    """

    length: int
    start: float = 1.0
    end: float = 0.0

    def __post_init__(self) -> None:
        require_length(self.length, "Linear")
        require_factor(self.start, "Linear", "start")
        require_factor(self.end, "Linear", "end")

    @property
    def constant(self) -> bool:
        """If both factors are 1, the factor never changes."""
        return self.start == self.end == 1

    def factor(self, n: int) -> float:
        """Return the factor at n."""
        share = min(n, self.length) / self.length
        return self.start + (self.end - self.start) * share
