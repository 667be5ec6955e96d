"""`Adagrad`: gradients divided by the root of their sum of squares."""

from __future__ import annotations

from poise.core.parts import part
from poise.core.protocols import Transform
from poise.core.vectors import Stack
from poise.solvers.optimizers.base import OptimizerState, require_eps


@part("optimizer", "adagrad")
class Adagrad:
    """``g / (sqrt(s_t) + eps)`` with ``s_t = s_{t-1} + g^2``, PyTorch's Adagrad.

    Args:
        eps: added to the root.

    Source: [Duchi 2011].

    >>> Adagrad().keeps
    ('sum',)
    """

    eps: float = 1e-10

    def __post_init__(self) -> None:
        require_eps(self.eps, "Adagrad")

    @property
    def keeps(self) -> tuple[str, ...]:
        """The sum of the squares."""
        return ("sum",)

    @property
    def first_step(self) -> float:
        """The first gradient is divided by its own size."""
        return 1.0

    def direction(self, state: OptimizerState) -> Transform:
        """Return the transform of Adagrad."""

        def transform(gradients: Stack, weights: Stack) -> Stack:
            total = state["sum"][: len(gradients)]
            total.addcmul_(gradients, gradients)
            return gradients.div_(total.sqrt().add_(self.eps))

        return transform
