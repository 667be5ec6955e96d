"""`Constant`: the same learning rate everywhere."""

from __future__ import annotations

from poise.core.parts import part


@part("schedule", "constant")
class Constant:
    """The factor 1.

    >>> Constant().factor(10)
    1.0
    """

    @property
    def constant(self) -> bool:
        """The factor never changes."""
        return True

    def factor(self, n: int) -> float:
        """Return 1."""
        return 1.0
