"""Conditions of the theorem that the data and the ledger decide: L and the learning rates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from poise.core.curvature import Curvature
from poise.core.protocols import Solver
from poise.core.traits import SolverTraits, traits_of
from poise.engine.plan import Parts
from poise.ledger.run import Run


@dataclass(frozen=True)
class Conditions:
    """Facts about a run that the proof needs.

    Args:
        curvature: bounds of the clients' Hessians; None if unknown.
        rate: eta, the largest learning rate of a local step.
    """

    curvature: Curvature | None
    rate: float

    def checked(self, solver: Solver) -> dict[str, Any] | None:
        """Return the numbers of ``eta (L + lambda + mu) <= 1``; None if L is unknown."""
        if self.curvature is None:
            return None
        traits = traits_of(solver, SolverTraits)
        return {
            "losses": self.curvature.kind,
            "L": self.curvature.smoothness,
            "mu": self.curvature.convexity,
            "one Hessian per client": self.curvature.exact,
            "weight decay": traits.weight_decay,
            "proximal mu": traits.pull,
            "eta": self.rate,
            "eta L": self.rate * self.curvature.total(traits),
        }


def conditions_of(
    runs: Iterable[tuple[Run, int]], parts: Parts, curvature: Curvature | None
) -> Conditions:
    """Return the conditions of a training and its branches, each with a number of rounds."""
    rounds = max(length for _, length in runs)
    rate = max(parts.solver.rate(n) for n in range(max(rounds, 1)))
    return Conditions(curvature, rate=float(rate))
