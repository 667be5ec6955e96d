"""`FedFor`: a penalty on local steps against the last global step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from poise.core.errors import require
from poise.core.parts import part
from poise.core.protocols import Memory, Transform
from poise.core.traits import SolverTraits
from poise.core.vectors import Stack, Vector
from poise.solvers.base import LocalSGD


@part("solver", "fedfor")
class FedFor(LocalSGD):
    """``g_i(w) + strength * grad_w sum_j relu(-d_j (w_j - theta_j))`` with d the last global step.

    The penalty on a move against d is of first order: the gradient of coordinate j gets
    ``-strength * d_j`` where ``d_j (w_j - theta_j) < 0``, and 0 elsewhere. d = 0 in
    round 0. The paper describes the method in words, without code; this is our reading
    of it.

    Args:
        strength: lambda. The other options are those of `SGD`.

    Source: [Tian 2022], in the words of [Exp-α 2023, §2, App. A.1].

    >>> FedFor(2.0, lr=0.1, steps=5).memory
    LastStep(strength=2.0)
    """

    strength: float

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.strength >= 0 and isfinite(self.strength),
            f"FedFor: strength must be 0 or more, not {self.strength}",
            where="strength",
        )

    @property
    def traits(self) -> SolverTraits:
        """Declare no plain gradient steps, because of the penalty."""
        return self.traits_with(SolverTraits())

    @property
    def own_memory(self) -> Memory:
        """The last global step, which the server sends with the model."""
        return LastStep(self.strength)


@dataclass(frozen=True)
class LastStep(Memory):
    """The state of `FedFor`: d = theta[n] - theta[n-1], on the server."""

    strength: float

    def shared(self, theta: Vector) -> dict[str, Vector]:
        """Return d = 0, the value before the first step."""
        return {"last_step": theta.new_zeros(theta.shape)}

    def terms(
        self,
        start: Stack,
        shared: Mapping[str, Vector],
        client_state: Mapping[str, Stack],
    ) -> tuple[Transform, ...]:
        """Return the gradient of the penalty."""
        d = shared["last_step"]

        def penalise(gradients: Stack, weights: Stack) -> Stack:
            against = (weights - start[: len(weights)]).mul_(d) < 0
            return gradients.sub_(against * d, alpha=self.strength)

        return (penalise,)

    def observe(
        self, shared: Mapping[str, Vector], change: Vector
    ) -> Mapping[str, Vector]:
        """Store the newest global step."""
        return {"last_step": change}
