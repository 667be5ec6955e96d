"""FedAvgM: the server has momentum."""

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
    """``v <- beta v + D``; ``theta <- theta + lr v`` (Nesterov: ``theta + lr (D + beta v)``); beta
    = 0 is `Add`.

    Args:
        lr: server learning rate.
        beta: momentum, in [0, 1).
        nesterov: look ahead along the velocity.

    Source: B section 4 (Hsu et al. 2019).
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
            0 <= self.beta < 1, f"Momentum: beta must be in [0, 1), not {self.beta}", where="beta"
        )

    @property
    def traits(self) -> ServerTraits:
        """The velocity remembers earlier directions."""
        return ServerTraits(rate=self.lr)

    def fit(self, setting: Setting) -> None:
        """Fits everywhere."""

    def init(self, theta: Vector) -> ServerState:
        """The velocity is zero."""
        return {"velocity": torch.zeros_like(theta)}

    def apply(
        self, theta: Vector, direction: Vector, state: ServerState
    ) -> tuple[Vector, ServerState]:
        """Move along the velocity."""
        velocity = self.beta * state["velocity"] + direction
        step = direction + self.beta * velocity if self.nesterov else velocity
        return theta.add(step, alpha=self.lr), {"velocity": velocity}
