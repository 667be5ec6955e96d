"""`Add`: the server of FedAvg."""

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

    >>> import torch
    >>> Add(lr=0.5).apply(torch.zeros(2), torch.tensor([2.0, -4.0]), {})
    (tensor([ 1., -2.]), {})
    """

    lr: float = 1.0

    def __post_init__(self) -> None:
        require(
            self.lr > 0 and isfinite(self.lr),
            f"Add: lr must be above 0, not {self.lr}",
            where="lr",
        )

    @property
    def traits(self) -> ServerTraits:
        """Declare that the server adds the direction and keeps no state."""
        return ServerTraits(adds=True, stateless=True, rate=self.lr)

    def fit(self, setting: Setting) -> None:
        """Accept every setting."""

    def init(self, theta: Vector) -> ServerState:
        """Return an empty state."""
        return {}

    def apply(
        self, theta: Vector, direction: Vector, state: ServerState
    ) -> tuple[Vector, ServerState]:
        """Add lr times the direction to the model."""
        return theta.add(direction, alpha=self.lr), state
