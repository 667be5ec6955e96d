"""`Adam` and `AdamW`: local Adam, with coupled or decoupled weight decay."""

from __future__ import annotations

from dataclasses import field

from poise.core.errors import require
from poise.core.parts import part
from poise.core.traits import SolverTraits
from poise.solvers import optimizers
from poise.solvers.base import LocalSteps
from poise.solvers.optimizers.base import made


@part("solver", "adam")
class Adam(LocalSteps):
    """Local Adam: ``w <- w - lr m_t / (sqrt(v_t) + eps)``, with corrected moments.

    Each client has its own moments. They start from zero in every piece of work,
    unless the client keeps them (``keep_state``).

    Args:
        lr: learning rate. The options of the steps are those of `SGD`, without momentum
            and optimizer.
        beta1: share of the old mean, in [0, 1).
        beta2: share of the old mean square, in [0, 1).
        eps: added to the root.

    Source: [Kingma 2015].

    >>> Adam(lr=0.001, epochs=1, batch_size=32).optimizer_used
    Adam(beta1=0.9, beta2=0.999, eps=1e-08)
    """

    lr: float = field(kw_only=False)
    beta1: float = field(default=0.9, kw_only=True)
    beta2: float = field(default=0.999, kw_only=True)
    eps: float = field(default=1e-8, kw_only=True)

    @property
    def optimizer_used(self) -> optimizers.Adam:
        """Adam's moments; raises for options out of range."""
        return made(optimizers.Adam, self.beta1, self.beta2, self.eps)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.optimizer_used  # noqa: B018 - it checks its options

    @property
    def traits(self) -> SolverTraits:
        """Declare that clients send only updates; the steps are no gradient steps."""
        return self.traits_with(SolverTraits(sends_only_updates=True))


@part("solver", "adamw")
class AdamW(Adam):
    """Local AdamW: Adam with decoupled weight decay, ``w <- w - lr (adam + weight_decay w)``.

    Args:
        lr: learning rate. The other options are those of `Adam`.
        weight_decay: lambda; 0.01 by default, as in PyTorch.

    Source: [Loshchilov 2019].

    >>> AdamW(lr=0.001, steps=10).weight_decay
    0.01
    """

    weight_decay: float = field(default=0.01, kw_only=True)
    decoupled: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.decoupled,
            "AdamW: its weight decay is decoupled",
            "use Adam for coupled weight decay",
            where="decoupled",
        )

    @property
    def traits(self) -> SolverTraits:
        """Declare that clients send only updates; the steps are no gradient steps."""
        return self.traits_with(SolverTraits(sends_only_updates=True))
