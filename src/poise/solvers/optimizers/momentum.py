"""`Momentum`: heavy ball, or Nesterov's momentum."""

from __future__ import annotations

import torch

from poise.core.parts import part
from poise.core.protocols import Transform
from poise.core.vectors import Stack
from poise.solvers.optimizers.base import OptimizerState, require_share


@part("optimizer", "momentum")
class Momentum:
    """``v_t = beta v_{t-1} + g``: the direction is v_t, or ``g + beta v_t`` with nesterov.

    Args:
        beta: share of the old velocity, in [0, 1).
        nesterov: whether to look ahead along the velocity.

    >>> Momentum(0.9).keeps
    ('velocity',)
    """

    beta: float = 0.9
    nesterov: bool = False

    def __post_init__(self) -> None:
        require_share(self.beta, "Momentum", "beta")

    @property
    def keeps(self) -> tuple[str, ...]:
        """The velocity."""
        return ("velocity",)

    @property
    def first_step(self) -> None:
        """The first step depends on the size of the gradient."""
        return None

    def direction(self, state: OptimizerState) -> Transform:
        """Return the transform of momentum."""

        def transform(gradients: Stack, weights: Stack) -> Stack:
            velocity = state["velocity"][: len(gradients)]
            velocity.mul_(self.beta).add_(gradients)
            if self.nesterov:
                return torch.add(gradients, velocity, alpha=self.beta)
            return velocity

        return transform
