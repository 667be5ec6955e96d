"""FedFor: do not walk against the last global step."""

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

    Moving a coordinate against d is penalised to first order: where ``d_j (w_j - theta_j) < 0`` the
    gradient gets ``-strength * d_j``, elsewhere nothing. d = 0 in round 0. The published text
    describes this in words and gives no code; this is our reading of it.

    Args:
        strength: lambda. The other options are those of `SGD`.

    Source: B section 2, App. A.1.
    """

    strength: float

    def __post_init__(self) -> None:
        super().__post_init__()
        known = self.strength >= 0 and isfinite(self.strength)
        require(known, f"FedFor: strength must be 0 or more, not {self.strength}", where="strength")

    @property
    def traits(self) -> SolverTraits:
        """A penalty stands between the gradient and the step."""
        return self.traits_with(SolverTraits())

    @property
    def memory(self) -> Memory:
        """The server sends the last global step along."""
        return LastStep(self.strength)


@dataclass(frozen=True)
class LastStep(Memory):
    """What FedFor remembers: d = theta[n] - theta[n-1], on the server."""

    strength: float

    def shared(self, theta: Vector) -> dict[str, Vector]:
        """No step yet."""
        return {"last_step": theta.new_zeros(theta.shape)}

    def terms(
        self, start: Stack, shared: Mapping[str, Vector], own: Mapping[str, Stack]
    ) -> tuple[Transform, ...]:
        """The penalty's gradient."""
        d = shared["last_step"]

        def penalise(gradients: Stack, weights: Stack) -> Stack:
            against = (weights - start[: len(weights)]).mul_(d) < 0
            return gradients.sub_(against * d, alpha=self.strength)

        return (penalise,)

    def observe(self, shared: Mapping[str, Vector], change: Vector) -> Mapping[str, Vector]:
        """The newest global step."""
        return {"last_step": change}
