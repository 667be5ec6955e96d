"""`Scaled`: clients that send a fraction of their honest update."""

from __future__ import annotations

from poise.attacks.base import check_clients, fit_clients
from poise.core.errors import require
from poise.core.parts import part
from poise.core.types import AttackerView, ForgedUpdate, Setting


@part("attack", "scaled")
class Scaled:
    """``Delta = fraction * (the client's honest update)``.

    Args:
        clients: the client numbers of the attackers.
        fraction: factor on the honest update, at least 0.

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
        """Refuse federations without these clients."""
        fit_clients("Scaled", self.clients, setting)

    def answer(self, view: AttackerView, seed: int) -> ForgedUpdate:
        """Return the fraction of the honest update."""
        assert view.work is not None
        return ForgedUpdate(self.fraction * view.work)
