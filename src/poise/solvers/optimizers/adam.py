"""`Adam`: moving averages of the gradient and its square, with bias correction."""

from __future__ import annotations

import torch

from poise.core.parts import part
from poise.core.protocols import Transform
from poise.core.vectors import Stack
from poise.solvers.optimizers.base import (
    STEPS,
    OptimizerState,
    require_eps,
    require_share,
)


@part("optimizer", "adam")
class Adam:
    """``m_t / (1 - beta1^t) / (sqrt(v_t / (1 - beta2^t)) + eps)``, PyTorch's Adam.

    ``m_t = beta1 m_{t-1} + (1 - beta1) g`` and ``v_t = beta2 v_{t-1} + (1 - beta2) g^2``.
    With decoupled weight decay it is AdamW.

    Args:
        beta1: share of the old mean, in [0, 1).
        beta2: share of the old mean square, in [0, 1).
        eps: added to the root.

    Source: [Kingma 2015], [Loshchilov 2019].

    >>> Adam(beta1=0.8).keeps
    ('mean', 'square', 'steps')
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def __post_init__(self) -> None:
        require_share(self.beta1, "Adam", "beta1")
        require_share(self.beta2, "Adam", "beta2")
        require_eps(self.eps, "Adam")

    @property
    def keeps(self) -> tuple[str, ...]:
        """The mean, the mean square and the number of steps."""
        return ("mean", "square", STEPS)

    @property
    def first_step(self) -> float:
        """The bias correction makes the first step 1."""
        return 1.0

    def direction(self, state: OptimizerState) -> Transform:
        """Return Adam's transform: PyTorch's fused kernel on a CPU."""
        if state["mean"].device.type == "cpu":
            return self.fused(state)
        return self.composed(state)

    def fused(self, state: OptimizerState) -> Transform:
        """Return the transform in one pass over the memory.

        Each client is a tensor of its own. In one tensor of all clients, the last
        digits of a client would depend on its place.
        """
        out = torch.zeros_like(state["mean"])
        steps = state[STEPS]
        rows = [values.unbind() for values in (out, state["mean"], state["square"])]
        counts = steps.squeeze(1).unbind()

        def transform(gradients: Stack, weights: Stack) -> Stack:
            active = len(gradients)
            steps[:active].add_(1)
            torch._fused_adamw_(
                rows[0][:active],
                gradients.unbind(),
                rows[1][:active],
                rows[2][:active],
                [],
                counts[:active],
                lr=-1.0,  # the kernel subtracts, and the decay removes the old direction
                beta1=self.beta1,
                beta2=self.beta2,
                weight_decay=-1.0,
                eps=self.eps,
                amsgrad=False,
                maximize=False,
            )
            return out[:active]

        return transform

    def composed(self, state: OptimizerState) -> Transform:
        """Return the transform in single operations, for every device."""

        def transform(gradients: Stack, weights: Stack) -> Stack:
            mean, square, steps = (state[name][: len(gradients)] for name in self.keeps)
            steps.add_(1)
            mean.lerp_(gradients, 1 - self.beta1)
            square.mul_(self.beta2)
            square.addcmul_(gradients, gradients, value=1 - self.beta2)
            whole_mean = 1 - self.beta1 ** steps.double()
            whole_square = 1 - self.beta2 ** steps.double()
            torch.sqrt(square, out=gradients)
            gradients.div_(whole_square.sqrt().to(gradients)).add_(self.eps)
            torch.div(mean, gradients, out=gradients)
            return gradients.div_(whole_mean.to(gradients))

        return transform
