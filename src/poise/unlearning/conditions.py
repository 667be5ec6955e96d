"""Conditions of the theorem that the data and the ledger decide: L and the learning rates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from poise.core.curvature import Curvature
from poise.core.protocols import Solver
from poise.core.traits import SolverTraits, traits_of
from poise.engine.plan import Parts
from poise.results import Run
from poise.training import ALTERED, experiment_of, on_nodes


@dataclass(frozen=True)
class Conditions:
    """Facts about a run that the proof needs.

    Args:
        curvature: bounds of the clients' Hessians; None if unknown.
        rate: eta, the largest learning rate of a local step.
        on_nodes: whether the clients are nodes of a deployment, which report L.
        altered: whether nodes clipped updates or added noise to them.
    """

    curvature: Curvature | None
    rate: float
    on_nodes: bool = False
    altered: bool = False

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
    runs: Sequence[tuple[Run, int]], parts: Parts, curvature: Curvature | None
) -> Conditions:
    """Return the conditions of a training and its branches, each with a number of rounds.

    The training is the first of the runs.
    """
    rounds = max(length for _, length in runs)
    rate = max(parts.solver.rate(n) for n in range(max(rounds, 1)))
    return Conditions(
        curvature,
        rate=float(rate),
        on_nodes=on_nodes(experiment_of(runs[0][0])),
        altered=any(ALTERED in run.meta for run, _ in runs),
    )
