"""`Step`: a learning rate that falls in steps."""

from __future__ import annotations

from poise.core.errors import require
from poise.core.parts import part


@part("schedule", "step")
class Step:
    """``gamma ** (n // every)``, as PyTorch's StepLR.

    Args:
        every: rounds, or local steps, between two changes.
        gamma: factor of each change, in (0, 1].

    >>> [Step(2, gamma=0.5).factor(n) for n in range(5)]
    [1.0, 1.0, 0.5, 0.5, 0.25]
    """

    every: int
    gamma: float = 0.1

    def __post_init__(self) -> None:
        require(
            self.every >= 1,
            f"Step: every must be at least 1, not {self.every}",
            where="every",
        )
        require(
            0 < self.gamma <= 1,
            f"Step: gamma must be in (0, 1], not {self.gamma}",
            where="gamma",
        )

    @property
    def constant(self) -> bool:
        """With gamma = 1 the factor never changes."""
        return self.gamma == 1

    def factor(self, n: int) -> float:
        """Return ``gamma ** (n // every)``."""
        return float(self.gamma ** (n // self.every))
