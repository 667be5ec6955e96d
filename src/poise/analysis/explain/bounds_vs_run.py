"""Theoretical bounds and a measured run in one unit: F - F*, loss above its minimum."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from poise.analysis.explain.bounds import constant_rate
from poise.analysis.explain.explanation import Explanation
from poise.analysis.explain.fixed_point import known_decay, surrogate_optimum
from poise.analysis.explain.measured_skew import MeasuredSkew, measured_skew
from poise.core.errors import InvalidOption
from poise.core.traits import SolverTraits, traits_of
from poise.core.types import Floats, Ints
from poise.results import Run
from poise.tasks.client_gradients import Clients, double
from poise.training import Composition

POINTS = 40
"""Number of rounds at which bounds and models are evaluated."""

PASSES = 300


@dataclass(frozen=True)
class BoundsVsRun:
    """F - F* over the aggregations: bounds by name, predicted bias, measured run.

    ``skew`` is what a run with weights other than the importance measured; its bounds
    are among the others.
    """

    rounds: Floats  # (k,)
    bounds: dict[str, Floats]  # (k,) each
    bias: float  # F - F* at the optimum of the true objective
    measured_rounds: Floats = field(default_factory=lambda: np.zeros(0))
    measured: Floats = field(default_factory=lambda: np.zeros(0))
    skew: MeasuredSkew | None = None


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
    at_optimum = clients.losses(clients.same(known.optimum))
    least = float(p @ at_optimum)

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
    losses = []
    for n in kept:
        model = np.array(run.models(int(n)), dtype=np.float64)
        losses.append(clients.losses(clients.same(torch.from_numpy(model))))
    skew = None
    if _skews(composition, explanation) and known.floors is not None:
        used = kept < run.rounds
        skew = measured_skew(
            p,
            weights=run.weights,
            versions=kept[used],
            losses=np.array(losses)[used],
            at_optimum=at_optimum,
            floors=known.floors,
        )
    if skew is not None:
        bounds.update(_measured_bounds(composition, explanation, skew, steps))
    return BoundsVsRun(
        steps.astype(float),
        bounds,
        bias=bias,
        measured_rounds=kept.astype(float),
        measured=np.array(losses) @ p - least,
        skew=skew,
    )


def _skews(composition: Composition, explanation: Explanation) -> bool:
    """Whether the bounds of [Mansour 2022] and [Exp-α 2023] speak of this run.

    They cover what has a bound at its own rate, except pulls and perturbed gradients;
    weights that are the importance have no skew.
    """
    solver = traits_of(composition.parts.solver, SolverTraits)
    own = any(name.endswith("own rate") for name in explanation.terms)
    weighted = any("weights" in name for name in explanation.terms)
    return own and weighted and solver.pull == 0 and solver.own_share is None


def _measured_bounds(
    composition: Composition,
    explanation: Explanation,
    skew: MeasuredSkew,
    rounds: Ints,
) -> dict[str, Floats]:
    """The bounds with the skews that the run measured, at these rounds."""
    rate = constant_rate(composition.parts.solver)
    assert rate is not None
    assert explanation.constants is not None
    problem = explanation.constants.problem()
    sizes = np.asarray(composition.federation.sizes)
    local = int(composition.parts.solver.steps_for(sizes)[0])
    curves: dict[str, list[float]] = {}
    for n in rounds:
        for terms in skew.bounds(problem, local, int(n), rate):
            curves.setdefault(terms.name, []).append(terms.total)
    return {name: np.array(values) for name, values in curves.items()}
