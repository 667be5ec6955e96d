"""The server of FedAvg."""

from __future__ import annotations

from math import isfinite

from poise.core.errors import require
from poise.core.parts import part
from poise.core.protocols import ServerState
from poise.core.traits import ServerTraits
from poise.core.types import Setting
from poise.core.vectors import Vector


@part("server", "add")
class Add:
    """``theta <- theta + lr * D`` with D the aggregated direction; lr = 1 is FedAvg.

    Args:
        lr: server learning rate, eta_g.
    """

    lr: float = 1.0

    def __post_init__(self) -> None:
        require(
            self.lr > 0 and isfinite(self.lr), f"Add: lr must be above 0, not {self.lr}", where="lr"
        )

    @property
    def traits(self) -> ServerTraits:
        """The direction is added, and leaves no other trace."""
        return ServerTraits(adds=True, stateless=True, rate=self.lr)

    def fit(self, setting: Setting) -> None:
        """Fits everywhere."""

    def init(self, theta: Vector) -> ServerState:
        """No state."""
        return {}

    def apply(
        self, theta: Vector, direction: Vector, state: ServerState
    ) -> tuple[Vector, ServerState]:
        """Add the direction."""
        return theta.add(direction, alpha=self.lr), state
