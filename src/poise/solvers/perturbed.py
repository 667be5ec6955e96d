"""`Perturbed`: gradients at a mixture of the client's and its neighbours' models."""

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
from poise.solvers.base import LocalSGD
from poise.solvers.transforms import pulled


@part("solver", "perturbed")
class Perturbed(LocalSGD):
    """``w <- w - lr * g_i(beta w + (1 - beta) u_i)``, u_i the neighbours' mean.

    ``u_i = sum_j p_ij w_j / p_i``, with p_ij of the similarity graph and w_j the last
    local model of client j. A client that has not worked yet counts with theta^0, so
    u_i = theta^0 in round 0. The server keeps the last local model of every client and
    sends u_i with the model, which doubles the download. beta = 1 is `SGD`. With the
    weighting `Adjacency` this is Algorithm 2 of the paper.

    Args:
        beta: share of the client's own model, in (0, 1].
        mu: strength of FedProx's pull to the received model. The other options are
            those of `SGD`.

    Source: [Buttaci 2024, §4.3, Alg. 2].

    >>> Perturbed(0.7, lr=0.1, steps=5).beta
    0.7
    """

    beta: float
    mu: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            0 < self.beta <= 1,
            f"Perturbed: beta must be in (0, 1], not {self.beta}",
            where="beta",
        )
        require(
            self.mu >= 0 and isfinite(self.mu),
            f"Perturbed: mu must be 0 or more, not {self.mu}",
            where="mu",
        )

    @property
    def traits(self) -> SolverTraits:
        """Declare the pull, and the share of the own model in the gradient point."""
        return self.traits_with(SolverTraits(pull=self.mu, own_share=self.beta))

    @property
    def own_memory(self) -> Memory | None:
        """The mean of the neighbours; None for beta = 1."""
        if self.beta < 1:
            return Neighbourhood(self.beta)
        return None

    def fit(self, setting: Setting) -> None:
        """Refuse settings without a similarity graph, unless beta = 1."""
        super().fit(setting)
        if self.own_memory is not None:
            setting.neighbours()

    def terms(self, start: Stack) -> tuple[Transform, ...]:
        """Return the term ``mu (w - theta)``."""
        return pulled(self.mu, start)


@dataclass(frozen=True)
class Neighbourhood(Memory):
    """The state of `Perturbed`: theta^0 on the server, the mean u_i of each client."""

    beta: float

    keeps = (MEAN,)
    begins_at_start = True  # without a mean, a client uses the model it received
    neighbours = True

    def shared(self, theta: Vector) -> dict[str, Vector]:
        """Return theta^0, which stands for clients that have not worked yet."""
        return {FIRST: theta.clone()}

    def point(self, client_state: Mapping[str, Stack]) -> Callable[[Stack], Stack]:
        """Return the gradient point ``beta w + (1 - beta) u_i`` as a function of w."""
        mean = client_state[MEAN]
        return lambda weights: (
            weights * self.beta + mean[: len(weights)] * (1 - self.beta)
        )
