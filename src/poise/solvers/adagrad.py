"""`Adagrad`: local Adagrad."""

from __future__ import annotations

from dataclasses import field

from poise.core.parts import part
from poise.core.traits import SolverTraits
from poise.solvers import optimizers
from poise.solvers.base import LocalSteps
from poise.solvers.optimizers.base import made


@part("solver", "adagrad")
class Adagrad(LocalSteps):
    """Local Adagrad: ``w <- w - lr g / (sqrt(s_t) + eps)``, s_t the sum of squares of g.

    Args:
        lr: learning rate. The options of the steps are those of `SGD`, without momentum
            and optimizer.
        eps: added to the root.

    Source: [Duchi 2011].

    >>> Adagrad(lr=0.01, steps=10).optimizer_used
    Adagrad(eps=1e-10)
    """

    lr: float = field(kw_only=False)
    eps: float = field(default=1e-10, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.optimizer_used  # noqa: B018 - it checks its options

    @property
    def optimizer_used(self) -> optimizers.Adagrad:
        """Adagrad's sum; raises for options out of range."""
        return made(optimizers.Adagrad, self.eps)

    @property
    def traits(self) -> SolverTraits:
        """Declare that clients send only updates; the steps are no gradient steps."""
        return self.traits_with(SolverTraits(sends_only_updates=True))
