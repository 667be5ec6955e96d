"""`RMSprop`: local RMSprop."""

from __future__ import annotations

from dataclasses import field

from poise.core.parts import part
from poise.core.traits import SolverTraits
from poise.solvers import optimizers
from poise.solvers.base import LocalSteps
from poise.solvers.optimizers.base import made


@part("solver", "rmsprop")
class RMSprop(LocalSteps):
    """Local RMSprop: ``w <- w - lr g / (sqrt(v_t) + eps)``, v_t the mean square of g.

    Args:
        lr: learning rate. The options of the steps are those of `SGD`, without nesterov
            and optimizer.
        alpha: share of the old mean square, in [0, 1).
        eps: added to the root.
        momentum: share of the old direction, in [0, 1).
        centered: whether to divide by the deviation instead of the root mean square.

    >>> RMSprop(lr=0.01, steps=10).optimizer_used
    RMSprop(alpha=0.99, eps=1e-08, momentum=0.0, centered=False)
    """

    lr: float = field(kw_only=False)
    alpha: float = field(default=0.99, kw_only=True)
    eps: float = field(default=1e-8, kw_only=True)
    momentum: float = field(default=0.0, kw_only=True)
    centered: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.optimizer_used  # noqa: B018 - it checks its options

    @property
    def optimizer_used(self) -> optimizers.RMSprop:
        """RMSprop's averages; raises for options out of range."""
        return made(
            optimizers.RMSprop, self.alpha, self.eps, self.momentum, self.centered
        )

    @property
    def traits(self) -> SolverTraits:
        """Declare that clients send only updates; the steps are no gradient steps."""
        return self.traits_with(SolverTraits(sends_only_updates=True))
