"""What was promised and what was measured, in the same unit: the loss above its least value."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from poise.analysis.explain.client_gradients import Clients, double
from poise.analysis.explain.explanation import Explanation
from poise.analysis.explain.fixed_point import known_decay, surrogate_optimum
from poise.core.errors import InvalidOption
from poise.core.types import Floats
from poise.ledger.run import Run
from poise.training import Composition

POINTS = 40
"""Rounds at which bounds and models are looked at."""

PASSES = 300


@dataclass(frozen=True)
class Promises:
    """F - F* over the aggregations: bounds by name, where the surrogate leads, and what a run
    reached.
    """

    rounds: Floats  # (k,)
    bounds: dict[str, Floats]  # (k,) each
    bias: float  # F at the optimum of the surrogate, above F*
    measured_rounds: Floats = field(default_factory=lambda: np.zeros(0))
    measured: Floats = field(default_factory=lambda: np.zeros(0))


def promises(composition: Composition, found: Explanation, run: Run | None = None) -> Promises:
    """Evaluate the bounds along the run, solve for the optimum of the objective really minimised,
    measure kept models.

    Args:
        composition: what was explained, on a convex task that is small enough to be solved.
        found: its explanation.
        run: a run of it, for the measured curve; all of its kept models are looked at, up to 40.
    """
    known = found.constants
    if known is None or known.optimum is None:
        raise InvalidOption(
            "the optimum of this problem is not known",
            "a convex task with weight decay, not too large",
        )
    fed, decay = composition.federation, known_decay(composition.parts.solver)
    oracle = double(composition.task).bind(fed)
    clients = Clients.open(oracle, np.arange(fed.clients, dtype=np.int64), decay)
    p = np.asarray(fed.importance, dtype=np.float64)
    least = float(p @ clients.losses(clients.same(known.optimum)))

    def gap(theta: torch.Tensor) -> float:
        return float(p @ clients.losses(clients.same(theta))) - least

    steps = np.unique(np.linspace(1, max(found.rounds, 1), POINTS).astype(int))
    curves: dict[str, list[float]] = {}
    for n in steps:
        for name, terms in found.terms_at(int(n)).items():
            if name.startswith("loss gap"):
                curves.setdefault(name, []).append(terms.total)
    bounds = {name: np.array(values) for name, values in curves.items()}
    there = surrogate_optimum(
        clients, found.objective, known.optimum, known.smoothness.value, PASSES
    )
    bias = max(gap(there), 0.0)
    if run is None:
        return Promises(steps.astype(float), bounds, bias)
    kept = np.array(run.kept)[np.unique(np.linspace(0, len(run.kept) - 1, POINTS).astype(int))]
    measured = np.array(
        [gap(torch.from_numpy(np.array(run.models(int(n)), dtype=np.float64))) for n in kept]
    )
    return Promises(steps.astype(float), bounds, bias, kept.astype(float), measured)
