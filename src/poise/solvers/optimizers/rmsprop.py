"""`RMSprop`: gradients divided by the root of their mean square."""

from __future__ import annotations

from math import sqrt

import torch

from poise.core.parts import part
from poise.core.protocols import Transform
from poise.core.vectors import Stack
from poise.solvers.optimizers.base import OptimizerState, require_eps, require_share


@part("optimizer", "rmsprop")
class RMSprop:
    """``g / (sqrt(v_t) + eps)`` with ``v_t = alpha v_{t-1} + (1 - alpha) g^2``, as PyTorch.

    With momentum, the direction is ``b_t = momentum b_{t-1} + g / (sqrt(v_t) + eps)``.
    If ``centered``, the square of the mean gradient is subtracted from v_t.

    Args:
        alpha: share of the old mean square, in [0, 1).
        eps: added to the root.
        momentum: share of the old direction, in [0, 1).
        centered: whether to divide by the deviation instead of the root mean square.

    >>> RMSprop(momentum=0.9).keeps
    ('square', 'velocity')
    """

    alpha: float = 0.99
    eps: float = 1e-8
    momentum: float = 0.0
    centered: bool = False

    def __post_init__(self) -> None:
        require_share(self.alpha, "RMSprop", "alpha")
        require_share(self.momentum, "RMSprop", "momentum")
        require_eps(self.eps, "RMSprop")

    @property
    def keeps(self) -> tuple[str, ...]:
        """The mean square; the mean if centred; the velocity with momentum."""
        names = ["square"]
        if self.centered:
            names.append("mean")
        if self.momentum:
            names.append("velocity")
        return tuple(names)

    @property
    def first_step(self) -> float | None:
        """There is no bias correction: 10 for alpha = 0.99."""
        share = 1 - self.alpha
        if self.centered:
            share -= share**2
        return 1 / sqrt(share) if share > 0 else None

    def direction(self, state: OptimizerState) -> Transform:
        """Return the transform of RMSprop."""

        def transform(gradients: Stack, weights: Stack) -> Stack:
            active = len(gradients)
            square = state["square"][:active]
            square.mul_(self.alpha)
            square.addcmul_(gradients, gradients, value=1 - self.alpha)
            spread = square
            if self.centered:
                mean = state["mean"][:active]
                mean.lerp_(gradients, 1 - self.alpha)
                spread = torch.addcmul(square, mean, mean, value=-1)
            directions = gradients.div_(spread.sqrt().add_(self.eps))
            if not self.momentum:
                return directions
            velocity = state["velocity"][:active]
            return velocity.mul_(self.momentum).add_(directions)

        return transform
