"""`Cosine`: a learning rate that falls along half a cosine."""

from __future__ import annotations

from math import cos, pi

from poise.core.parts import part
from poise.solvers.schedules.base import require_factor, require_length


@part("schedule", "cosine")
class Cosine:
    """``end + (1 - end) (1 + cos(pi n / length)) / 2``, then ``end``.

    This is PyTorch's CosineAnnealingLR up to its first minimum.

    Args:
        length: rounds, or local steps, until the end.
        end: the last factor.

    Source: [Loshchilov 2017].

    >>> [round(Cosine(4).factor(n), 3) for n in range(6)]
    [1.0, 0.854, 0.5, 0.146, 0.0, 0.0]
    """

    length: int
    end: float = 0.0

    def __post_init__(self) -> None:
        require_length(self.length, "Cosine")
        require_factor(self.end, "Cosine", "end")

    @property
    def constant(self) -> bool:
        """If the last factor is 1, the factor never changes."""
        return self.end == 1

    def factor(self, n: int) -> float:
        """Return the factor at n."""
        share = min(n, self.length) / self.length
        return self.end + (1 - self.end) * (1 + cos(pi * share)) / 2
