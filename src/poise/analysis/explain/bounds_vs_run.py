"""Theoretical bounds and a measured run in one unit: F - F*, loss above its minimum."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from poise.analysis.explain.client_gradients import Clients, double
from poise.analysis.explain.explanation import Explanation
from poise.analysis.explain.fixed_point import known_decay, surrogate_optimum
from poise.core.errors import InvalidOption
from poise.core.types import Floats
from poise.results import Run
from poise.training import Composition

POINTS = 40
"""Number of rounds at which bounds and models are evaluated."""

PASSES = 300


@dataclass(frozen=True)
class BoundsVsRun:
    """F - F* over the aggregations: bounds by name, predicted bias, measured run."""

    rounds: Floats  # (k,)
    bounds: dict[str, Floats]  # (k,) each
    bias: float  # F - F* at the optimum of the true objective
    measured_rounds: Floats = field(default_factory=lambda: np.zeros(0))
    measured: Floats = field(default_factory=lambda: np.zeros(0))


def bounds_vs_run(
    composition: Composition, explanation: Explanation, run: Run | None = None
) -> BoundsVsRun:
    """Evaluate the bounds, the predicted bias and the kept models along a run.

    Args:
        composition: the explained composition; its task must be convex and small.
        explanation: its explanation.
        run: a run of it, for the measured curve; at most 40 of its kept models are
            evaluated.
    """
    known = explanation.constants
    if known is None or known.optimum is None:
        raise InvalidOption(
            "the optimum of this problem is unknown",
            "use a small convex task with weight decay",
        )
    fed = composition.federation
    decay = known_decay(composition.parts.solver)
    oracle = double(composition.task).bind(fed)
    clients = Clients.open(oracle, np.arange(fed.clients, dtype=np.int64), decay)
    p = np.asarray(fed.importance, dtype=np.float64)
    least = float(p @ clients.losses(clients.same(known.optimum)))

    def gap(theta: torch.Tensor) -> float:
        return float(p @ clients.losses(clients.same(theta))) - least

    steps = np.unique(np.linspace(1, max(explanation.rounds, 1), POINTS).astype(int))
    curves: dict[str, list[float]] = {}
    for n in steps:
        for name, terms in explanation.terms_at(int(n)).items():
            if name.startswith("loss gap"):
                curves.setdefault(name, []).append(terms.total)
    bounds = {name: np.array(values) for name, values in curves.items()}
    optimum = surrogate_optimum(
        clients,
        explanation.objective,
        start=known.optimum,
        smoothness=known.smoothness.value,
        passes=PASSES,
    )
    bias = max(gap(optimum), 0.0)
    if run is None:
        return BoundsVsRun(steps.astype(float), bounds, bias)
    kept = np.array(run.kept)[
        np.unique(np.linspace(0, len(run.kept) - 1, POINTS).astype(int))
    ]
    measured = []
    for n in kept:
        model = np.array(run.models(int(n)), dtype=np.float64)
        measured.append(gap(torch.from_numpy(model)))
    return BoundsVsRun(
        steps.astype(float),
        bounds,
        bias=bias,
        measured_rounds=kept.astype(float),
        measured=np.array(measured),
    )
