"""The bounds that speak of a composition, at the end of its training, and the conditions that
hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import isfinite, isnan

import numpy as np

from poise import theory
from poise.analysis.explain.constants import Constants
from poise.analysis.explain.remarks import Seen, in_theory
from poise.analysis.explain.scheme import Scheme, by_losses, selects_everyone, waits_for_all
from poise.core.durations import FixedDurations
from poise.core.traits import (
    ClockTraits,
    ServerTraits,
    SolverTraits,
    WeightingTraits,
    traits_of,
)
from poise.theory import Assumption, Terms


def bounds(seen: Seen, constants: Constants, rounds: float) -> Mapping[str, Terms]:
    """The named bounds that this composition has, with whatever constants are known."""
    steps, problem = _steps(seen), constants.problem()
    if steps is None or rounds < 1 or not in_theory(seen.parts):
        return {}
    found: list[Terms] = []
    together = selects_everyone(seen.parts) and waits_for_all(seen.parts.clock)
    if together and isfinite(problem.smoothness):
        convex = isfinite(problem.convexity) and problem.convexity > 0
        found += (
            _convex(seen, problem, steps, int(rounds))
            if convex
            else _smooth(seen, problem, steps, int(rounds))
        )
    if waits_for_all(seen.parts.clock) and not by_losses(seen.scheme.weighting):
        found += _sampled(seen, constants, steps, int(rounds))
    if not seen.parts.clock.waits:
        found += _late(seen, constants, steps, rounds)
    kept = Assumption("the mean weights are the importance", not seen.scheme.biased(seen.p))
    whole = [
        replace(t, assumptions=(*t.assumptions, kept)) if "weights" not in t.name else t
        for t in found
    ]
    return {terms.name: terms for terms in whole if not isnan(terms.total)}


def _convex(seen: Seen, problem: theory.Problem, steps: int, rounds: int) -> list[Terms]:
    """Papers A to D: everyone takes part, strongly convex losses."""
    solver = traits_of(seen.parts.solver, SolverTraits)
    if by_losses(seen.scheme.weighting):
        pi, _ = theory.weight_range(theory.normalised(seen.scheme.mean), seen.p)
        return [theory.bounded_weights(problem, steps, steps * rounds, pi)] if pi > 0 else []
    if solver.own_share is not None:
        return [theory.perturbed_bound(problem, solver.own_share, steps, rounds)]
    if not solver.gradient_steps:
        return []
    return [theory.fedprox_bound(problem, solver.pull, steps, rounds, "fixed")]


def _smooth(seen: Seen, problem: theory.Problem, steps: int, rounds: int) -> list[Terms]:
    """Paper C: everyone takes part, nothing need be convex."""
    solver = traits_of(seen.parts.solver, SolverTraits)
    if solver.own_share is not None:
        return [theory.perturbed_stationary(problem, solver.own_share, steps, rounds)]
    if not solver.gradient_steps or by_losses(seen.scheme.weighting):
        return []
    return [theory.fedprox_stationary(problem, solver.pull, steps, rounds)]


def _sampled(seen: Seen, constants: Constants, steps: int, rounds: int) -> list[Terms]:
    """Paper E, chapter 2."""
    weights, problem = seen.scheme.statistics, constants.problem()
    rate, server = _rates(seen)
    solver, weighting = (
        traits_of(seen.parts.solver, SolverTraits),
        traits_of(seen.scheme.weighting, WeightingTraits),
    )
    plain = (
        solver.gradient_steps
        and solver.pull == 0
        and weighting.proportional
        and not weighting.reads_updates
    )
    if weights is None or rate is None or not isfinite(problem.smoothness) or not plain:
        return []
    spread = (2.0, 2 * constants.dissimilarity.value)
    return [
        theory.sampling_bound(
            problem,
            weights,
            steps=steps,
            rounds=rounds,
            rate=rate,
            server_rate=server,
            dissimilarity=spread,
        )
    ]


def _late(seen: Seen, constants: Constants, steps: int, rounds: float) -> list[Terms]:
    """Paper E, chapter 4: fixed times, everyone starts again at once."""
    scheme, problem, clock = (
        seen.scheme,
        constants.problem(),
        traits_of(seen.parts.clock, ClockTraits),
    )
    rate, server = _rates(seen)
    times = seen.parts.clock.times(seen.setting.clients)
    known = (
        isfinite(problem.distance)
        and isfinite(problem.smoothness)
        and isinstance(times, FixedDurations)
    )
    if not known or rate is None or scheme.shares is None or clock.schedule is None:
        return []
    assert isinstance(times, FixedDurations)
    tau, dt = times.mean(seen.setting.clients), clock.window
    weights = scheme.mean / scheme.shares
    alone = clock.schedule == "asynchronous"
    spread = float(scheme.mean @ np.full(len(tau), problem.gradient))
    return [
        theory.asynchronous_bound(
            problem,
            steps,
            rounds,
            rate,
            staleness=theory.staleness(clock.schedule, tau, dt),
            window=theory.window(clock.schedule, tau, dt),
            covariance=0.0 if alone else 1.0,
            excess=float(weights.max()) if alone else 0.0,
            residual=problem.heterogeneity,
            variance=spread,
            largest=float(weights.max()),
            server_rate=server,
            sum_of_weights=float(weights.max() if alone else weights.sum()),
        )
    ]


def _steps(seen: Seen) -> int | None:
    """Local steps, where everyone makes as many."""
    steps = seen.parts.solver.steps_for(np.asarray(seen.setting.sizes))
    return int(steps[0]) if (steps == steps[0]).all() else None


def _rates(seen: Seen) -> tuple[float | None, float]:
    """Local learning rate of plain SGD and the server's, where the server only adds."""
    server = traits_of(seen.parts.server, ServerTraits)
    plain = _adds(seen) and not traits_of(seen.parts.solver, SolverTraits).momentum
    local = seen.parts.solver.rate(0) if plain else None
    return local, 1.0 if server.rate is None else server.rate


def _adds(seen: Seen) -> bool:
    """Whether the server adds the direction, and nothing else."""
    server = traits_of(seen.parts.server, ServerTraits)
    return server.adds and server.noise == 0


def room_of(scheme: Scheme) -> float:
    """How far the mean weights may sum from 1 and still be said to sum to 1."""
    return 1e-9 if scheme.half_width is None else 1e-9 + float(np.linalg.norm(scheme.half_width))


def conditions(seen: Seen, constants: Constants | None) -> tuple[Assumption, ...]:
    """Which of the papers' conditions this composition meets."""
    scheme, statistics = seen.scheme, seen.scheme.statistics
    kept = not scheme.biased(seen.p, seen.progress)
    whole_mean = not scheme.biased(seen.p) and abs(float(scheme.mean.sum()) - 1) <= room_of(scheme)
    mu = None if constants is None else constants.convexity.value
    known = mu is not None and isfinite(mu)
    everyone = selects_everyone(seen.parts) and waits_for_all(seen.parts.clock)
    whole = seen.parts.clock.waits and float(np.ptp(scheme.schedule.sums)) <= 1e-9
    texts: dict[str, bool | None] = {
        "E[ω_i] = p_i (E Definition 2.1)": whole_mean,
        "q̃ = p: the objective asked for is minimised (E Theorem 4.3)": kept,
        "Cov ω_i ω_j = −α p_i p_j (E Assumption 2.1)": None
        if statistics is None
        else statistics.alpha is not None,
        "the weights of every aggregation sum to one (A, B, C, D)": bool(whole),
        "everyone takes part in every round (A, B, C, D)": everyone,
        "everyone makes the same number of local steps (all papers)": _steps(seen) is not None,
        "every client's loss is strongly convex (A, B, C §4.2.2, D)": bool(mu and mu > 0)
        if known
        else None,
        "the server adds (E)": _adds(seen),
    }
    if not in_theory(seen.parts):
        texts["the direction is a weighted sum of what clients made (all papers)"] = False
    return tuple(Assumption(text, holds) for text, holds in texts.items())
