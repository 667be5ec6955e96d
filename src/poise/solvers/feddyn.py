"""`FedDyn`: a dynamic regulariser that makes local and global optima agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

import torch

from poise.core.errors import require
from poise.core.parts import part
from poise.core.protocols import Memory, Transform
from poise.core.round_updates import RoundUpdates
from poise.core.traits import SolverTraits
from poise.core.types import Ints
from poise.core.vectors import Stack, Vector
from poise.solvers.base import LocalSGD


@part("solver", "feddyn")
class FedDyn(LocalSGD):
    """Local SGD on ``L_i(w) - <l_i, w> + alpha/2 |w - theta|^2``.

    Steps follow ``g_i(w) - l_i + alpha (w - theta)``. After its work, a client sets
    ``l_i <- l_i - alpha Delta_i``. The server keeps
    ``h <- h - alpha sum_{i in S} p_i Delta_i`` and adds ``-h/alpha`` to the aggregated
    direction.

    Args:
        alpha: strength of the regulariser. The other options are those of `SGD`.

    Source: [Exp-α 2023, footnote 3], [Acar 2021].

    >>> FedDyn(0.1, lr=0.1, steps=5).memory
    Duals(alpha=0.1)
    """

    alpha: float

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.alpha > 0 and isfinite(self.alpha),
            f"FedDyn: alpha must be above 0, not {self.alpha}",
            where="alpha",
        )

    @property
    def traits(self) -> SolverTraits:
        """Declare that the duals remove the drift of unequal local work."""
        return self.traits_with(SolverTraits(removes_drift=True))

    @property
    def own_memory(self) -> Memory:
        """The mean dual h on the server, and the dual l_i of each client."""
        return Duals(self.alpha)


@dataclass(frozen=True)
class Duals(Memory):
    """The state of `FedDyn`: h on the server, l_i on each client."""

    alpha: float

    keeps = ("dual",)

    def shared(self, theta: Vector) -> dict[str, Vector]:
        """Return h = 0, the value before the first round."""
        return {"dual": torch.zeros_like(theta)}

    def terms(
        self,
        start: Stack,
        shared: Mapping[str, Vector],
        client_state: Mapping[str, Stack],
    ) -> tuple[Transform, ...]:
        """Return the term ``alpha (w - theta) - l_i``."""

        def regularise(gradients: Stack, weights: Stack) -> Stack:
            rows = len(gradients)
            pulled = gradients.add_(weights, alpha=self.alpha).sub_(
                start[:rows], alpha=self.alpha
            )
            return pulled.sub_(client_state["dual"][:rows])

        return (regularise,)

    def client_state_after(
        self,
        client_state: Mapping[str, Stack],
        shared: Mapping[str, Vector],
        deltas: Stack,
        steps: Ints,
        rate: float,
    ) -> dict[str, Stack]:
        """Return the new dual ``l_i - alpha Delta_i``."""
        return {"dual": client_state["dual"] - self.alpha * deltas}

    def absorb(
        self,
        shared: Mapping[str, Vector],
        updates: RoundUpdates,
        sent: Mapping[str, Stack],
    ) -> tuple[Mapping[str, Vector], Vector | None]:
        """Return the new ``h - alpha sum p_i Delta_i``, and the shift ``-h/alpha``."""
        weights = torch.from_numpy(updates.importance).to(updates.deltas)
        dual = shared["dual"] - self.alpha * (weights @ updates.deltas)
        return {"dual": dual}, dual / -self.alpha
