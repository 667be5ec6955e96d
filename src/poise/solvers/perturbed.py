"""The perturbed gradient: look from between oneself and one's neighbours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite

from poise.core.errors import require
from poise.core.neighbours import FIRST, MEAN
from poise.core.parts import part
from poise.core.protocols import Memory, Transform
from poise.core.traits import SolverTraits
from poise.core.types import Setting
from poise.core.vectors import Stack, Vector
from poise.solvers.base import LocalSGD, pulled


@part("solver", "perturbed")
class Perturbed(LocalSGD):
    """``w <- w - lr * g_i( beta w + (1 - beta) u_i )``, u_i the weighted mean of the others' last
    local models.

    ``u_i = sum_j p_ij w_j / p_i`` with p_ij of the similarity graph; u_i = theta^0 in round 0, and
    a client that has not worked yet counts with theta^0. The server keeps the last local model of
    every client and sends u_i along: twice the way down. beta = 1 is `SGD`. With the weighting
    `Adjacency` this is Algorithm 2 of the paper.

    Args:
        beta: how much of the own model, in (0, 1].
        mu: strength of FedProx's pull to the model received. The other options are those of `SGD`.

    Source: C section 4.3, Algorithm 2.

    >>> Perturbed(0.7, lr=0.1, steps=5).beta
    0.7
    """

    beta: float
    mu: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            0 < self.beta <= 1, f"Perturbed: beta must be in (0, 1], not {self.beta}", where="beta"
        )
        require(
            self.mu >= 0 and isfinite(self.mu),
            f"Perturbed: mu must be 0 or more, not {self.mu}",
            where="mu",
        )

    @property
    def traits(self) -> SolverTraits:
        """Gradients are taken between the own model and the neighbours'."""
        return self.traits_with(SolverTraits(pull=self.mu, own_share=self.beta))

    @property
    def memory(self) -> Memory | None:
        """The mean of the neighbours; beta = 1 needs none."""
        return Neighbourhood(self.beta) if self.beta < 1 else None

    def fit(self, setting: Setting) -> None:
        """Needs a similarity graph of clients that come back."""
        super().fit(setting)
        if self.memory is not None:
            setting.neighbours()

    def terms(self, start: Stack) -> tuple[Transform, ...]:
        """``mu (w - theta)``."""
        return pulled(self.mu, start)


@dataclass(frozen=True)
class Neighbourhood(Memory):
    """What `Perturbed` remembers: theta^0 on the server, and the mean that each client was sent."""

    beta: float

    keeps = (MEAN,)
    begins_at_start = True  # a client that was sent no mean looks from the model it received
    neighbours = True

    def shared(self, theta: Vector) -> dict[str, Vector]:
        """The first model, which stands for clients that have not worked yet."""
        return {FIRST: theta.clone()}

    def point(self, own: Mapping[str, Stack]) -> Callable[[Stack], Stack]:
        """``beta w + (1 - beta) u_i``."""
        mean = own[MEAN]
        return lambda weights: weights * self.beta + mean[: len(weights)] * (1 - self.beta)
