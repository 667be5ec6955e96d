"""`Prox`: local SGD with a pull to the received model (FedProx)."""

from __future__ import annotations

from math import isfinite

from poise.core.errors import require
from poise.core.parts import part
from poise.core.protocols import Transform
from poise.core.traits import SolverTraits
from poise.core.vectors import Stack
from poise.solvers.base import LocalSGD
from poise.solvers.transforms import pulled


@part("solver", "prox")
class Prox(LocalSGD):
    """Local SGD on ``L_i(w) + mu/2 |w - theta|^2``: adds ``mu (w - theta)`` to g_i.

    mu = 0 is `SGD`.

    Args:
        mu: strength of the pull to the received model. The other options are those of
            `SGD`.

    Source: [Buttaci 2024, §4.2], [Fraboni 2023, §6.2.6], [Li 2020].

    >>> Prox(0.1, lr=0.1, steps=5).mu
    0.1
    """

    mu: float

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.mu >= 0 and isfinite(self.mu),
            f"Prox: mu must be 0 or more, not {self.mu}",
            where="mu",
        )

    @property
    def traits(self) -> SolverTraits:
        """Declare gradient steps with a pull, from which clients send only updates."""
        return self.traits_with(
            SolverTraits(gradient_steps=True, pull=self.mu, sends_only_updates=True)
        )

    def terms(self, start: Stack) -> tuple[Transform, ...]:
        """Return the term ``mu (w - theta)``."""
        return pulled(self.mu, start)
