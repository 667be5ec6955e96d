"""Conditions of the theorem that the data and the ledger decide: L, the rates, the coefficients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from poise.core.curvature import ROUNDING, Curvature
from poise.core.protocols import Solver
from poise.core.traits import ServerTraits, SolverTraits, traits_of
from poise.engine.plan import Parts
from poise.ledger.run import Run
from poise.training import ALTERED, experiment_of, on_nodes


@dataclass(frozen=True)
class Conditions:
    """Facts about a run that the proof needs.

    Args:
        curvature: bounds of the clients' Hessians; None if unknown.
        rate: eta, the largest learning rate of a local step.
        one_step: whether every client made at most one step per round.
        overshoots: whether the coefficients of a round, times the server's rate, added
            up to more than 1, or one was negative.
        on_nodes: whether the clients are nodes of a deployment, which report L.
        altered: whether nodes clipped updates or added noise to them.
    """

    curvature: Curvature | None
    rate: float
    one_step: bool
    overshoots: bool
    on_nodes: bool = False
    altered: bool = False

    @property
    def needs_quadratics(self) -> bool:
        """Whether convexity alone does not bound a round of this run.

        An average of non-expansive maps is non-expansive. Beyond an average, local work
        must act like a symmetric matrix: one step does, by the mean Hessian between two
        models, and so do several steps with one Hessian.
        """
        exact = self.curvature is not None and self.curvature.exact
        return self.overshoots and not self.one_step and not exact

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
    lr = traits_of(parts.server, ServerTraits).rate or 1.0
    rate = parts.solver.rate(0)
    most_steps = 0
    overshoots = False
    altered = False
    for run, rounds in runs:
        altered = altered or ALTERED in run.meta
        contributions = run.contributions[run.contributions["round"] < rounds]
        if not len(contributions):
            continue
        coefficients = contributions["coefficient"]
        sums = np.bincount(contributions["round"], coefficients)
        above = lr * float(sums.max()) > 1 + ROUNDING
        overshoots = overshoots or above or bool((coefficients < 0).any())
        most_steps = max(most_steps, int(contributions["steps"].max()))
        rate = max(rate, *(parts.solver.rate(n) for n in range(rounds)))
    return Conditions(
        curvature,
        rate=float(rate),
        one_step=most_steps <= 1,
        overshoots=overshoots,
        on_nodes=on_nodes(experiment_of(runs[0][0])),
        altered=altered,
    )
