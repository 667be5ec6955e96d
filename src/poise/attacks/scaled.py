"""Clients that do a part of the work and pass it off as all of it."""

from __future__ import annotations

from poise.attacks.base import check_clients, fit_clients
from poise.core.errors import require
from poise.core.parts import part
from poise.core.types import AttackerView, ForgedUpdate, Setting


@part("attack", "scaled")
class Scaled:
    """``Delta = fraction * (its own honest update)``.

    Args:
        clients: who sends a part.
        fraction: which part.

    >>> Scaled(clients=[2], fraction=0.1).works
    True
    """

    clients: tuple[int, ...]
    fraction: float = 0.1

    works = True

    def __post_init__(self) -> None:
        check_clients("Scaled", self.clients)
        require(
            self.fraction >= 0,
            f"Scaled: fraction must be at least 0, not {self.fraction}",
            where="fraction",
        )

    def fit(self, setting: Setting) -> None:
        """The clients must exist."""
        fit_clients("Scaled", self.clients, setting)

    def answer(self, seen: AttackerView, seed: int) -> ForgedUpdate:
        """A part of the work."""
        assert seen.work is not None
        return ForgedUpdate(self.fraction * seen.work)
