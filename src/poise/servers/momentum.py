"""`Momentum`: a server with momentum (FedAvgM)."""

from __future__ import annotations

from math import isfinite

import torch

from poise.core.errors import require
from poise.core.parts import part
from poise.core.protocols import ServerState
from poise.core.traits import ServerTraits
from poise.core.types import Setting
from poise.core.vectors import Vector


@part("server", "momentum")
class Momentum:
    """``v <- beta v + D``; ``theta <- theta + lr v``; beta = 0 is `Add`.

    Nesterov's variant is ``theta <- theta + lr (D + beta v)``.

    Args:
        lr: server learning rate.
        beta: momentum, in [0, 1).
        nesterov: whether to use Nesterov's variant.

    Source: [Exp-α 2023, §4], [Hsu 2019].

    >>> Momentum(beta=0.5).apply(torch.zeros(1), torch.ones(1), {"velocity": torch.ones(1)})
    (tensor([1.5000]), {'velocity': tensor([1.5000])})
    """

    lr: float = 1.0
    beta: float = 0.9
    nesterov: bool = False

    def __post_init__(self) -> None:
        require(
            self.lr > 0 and isfinite(self.lr),
            f"Momentum: lr must be above 0, not {self.lr}",
            where="lr",
        )
        require(
            0 <= self.beta < 1,
            f"Momentum: beta must be in [0, 1), not {self.beta}",
            where="beta",
        )

    @property
    def traits(self) -> ServerTraits:
        """Declare the rate; the velocity depends on earlier directions."""
        return ServerTraits(rate=self.lr)

    def fit(self, setting: Setting) -> None:
        """Accept every setting."""

    def init(self, theta: Vector) -> ServerState:
        """Return a velocity of zero."""
        return {"velocity": torch.zeros_like(theta)}

    def apply(
        self, theta: Vector, direction: Vector, state: ServerState
    ) -> tuple[Vector, ServerState]:
        """Move the model along the new velocity."""
        velocity = self.beta * state["velocity"] + direction
        step = velocity
        if self.nesterov:
            step = direction + self.beta * velocity
        return theta.add(step, alpha=self.lr), {"velocity": velocity}
