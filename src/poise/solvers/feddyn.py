"""FedDyn: a dynamic regulariser that makes local and global optima agree."""

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
    """Local minimisation of ``L_i(w) - <l_i, w> + alpha/2 |w - theta|^2``.

    Steps follow ``g_i(w) - l_i + alpha (w - theta)``; afterwards ``l_i <- l_i - alpha Delta_i``.
    The server keeps ``h <- h - alpha sum_{i in S} p_i Delta_i`` and moves by ``-h/alpha`` beside
    the aggregated direction.

    Args:
        alpha: strength of the regulariser. The other options are those of `SGD`.

    Source: B footnote 3 (Acar et al. 2021).
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
        """Its duals take the drift of unequal local work away."""
        return self.traits_with(SolverTraits(removes_drift=True))

    @property
    def memory(self) -> Memory:
        """The mean dual on the server, each client's own with it."""
        return Duals(self.alpha)


@dataclass(frozen=True)
class Duals(Memory):
    """What FedDyn remembers."""

    alpha: float

    keeps = ("dual",)

    def shared(self, theta: Vector) -> dict[str, Vector]:
        """Zero before the first round."""
        return {"dual": torch.zeros_like(theta)}

    def terms(
        self, start: Stack, shared: Mapping[str, Vector], own: Mapping[str, Stack]
    ) -> tuple[Transform, ...]:
        """``alpha (w - theta) - l_i``."""

        def regularise(gradients: Stack, weights: Stack) -> Stack:
            rows = len(gradients)
            pulled = gradients.add_(weights, alpha=self.alpha).sub_(start[:rows], alpha=self.alpha)
            return pulled.sub_(own["dual"][:rows])

        return (regularise,)

    def client_state_after(
        self,
        own: Mapping[str, Stack],
        shared: Mapping[str, Vector],
        deltas: Stack,
        steps: Ints,
        rate: float,
    ) -> dict[str, Stack]:
        """``l_i - alpha Delta_i``."""
        return {"dual": own["dual"] - self.alpha * deltas}

    def absorb(
        self, shared: Mapping[str, Vector], updates: RoundUpdates, sent: Mapping[str, Stack]
    ) -> tuple[Mapping[str, Vector], Vector | None]:
        """``h - alpha sum p_i Delta_i``, and the shift ``-h/alpha``."""
        weights = torch.from_numpy(updates.importance).to(updates.deltas)
        dual = shared["dual"] - self.alpha * (weights @ updates.deltas)
        return {"dual": dual}, dual / -self.alpha
