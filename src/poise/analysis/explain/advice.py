"""What the theory would choose."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

import numpy as np

from poise import theory
from poise.analysis.explain.constants import Constants
from poise.analysis.explain.remarks import Seen
from poise.core.durations import FixedDurations
from poise.core.traits import ClockTraits, SamplerTraits, SolverTraits, WeightingTraits, traits_of

KEPT = 0.5
"""The least share of its importance that advice on temperatures leaves to every client."""


def advice(
    seen: Seen, constants: Constants | None, rounds: float, time: float | None
) -> tuple[str, ...]:
    """Where a paper gives a choice: local steps, sampler, window, temperature."""
    found = [*_sampler(seen), *_window(seen, constants, time), *_temperature(seen)]
    return (*found, *(_steps(seen, constants, rounds) if constants is not None else ()))


def _steps(seen: Seen, constants: Constants, rounds: float) -> Iterator[str]:
    problem, share = constants.problem(), traits_of(seen.parts.solver, SolverTraits).own_share
    beta = 1.0 if share is None else share
    if not isfinite(problem.gradient) or problem.gradient <= 0 or not isfinite(problem.smoothness):
        return
    now = int(np.median(seen.parts.solver.steps_for(np.asarray(seen.setting.sizes)[:1000])))
    if isfinite(problem.heterogeneity) and isfinite(problem.noise):
        best, where = (
            theory.best_steps(problem, beta),
            "C section 4.4, strongly convex, falling rates",
        )
    elif isfinite(problem.gap) and isfinite(problem.noise) and rounds >= 1:
        best, where = theory.best_steps_nonconvex(problem, int(rounds), beta), "C Corollary 4.1"
    else:
        return
    yield f"local steps: the bound is least at E ≈ {max(best, 1):.3g} ({where}); there are {now}"


def _sampler(seen: Seen) -> Iterator[str]:
    drawn = traits_of(seen.parts.sampler, SamplerTraits)
    m = drawn.per_round
    if m is None or m >= seen.setting.clients or drawn.law is None:
        return
    squares, limit = theory.uniform_beats_md(seen.p, m)
    better, sign = ("Uniform", "≤") if squares <= limit else ("MD", ">")
    why = f"Σ p² = {squares:.3g} {sign} 1/(N−m+1) = {limit:.3g}"
    yield f"sampler: {better}({m}) has the better bound of uniform and MD, {why} (E Corollary 2.1)"


def _window(seen: Seen, constants: Constants | None, time: float | None) -> Iterator[str]:
    clock = seen.parts.clock
    dt, times = traits_of(clock, ClockTraits).window, clock.times(seen.setting.clients)
    if dt is None or not isinstance(times, FixedDurations):
        return
    tau = times.mean(seen.setting.clients)
    known: dict[str, float] = {}
    if constants is not None:
        pairs = {
            "distance": constants.distance,
            "residual": constants.heterogeneity,
            "variance": constants.gradient,
        }
        known = {k: c.value for k, c in pairs.items() if c.known}
    steps = int(np.median(seen.parts.solver.steps_for(np.asarray(seen.setting.sizes))))
    span = max(100 * float(tau.max()) if time is None else time, float(tau.max()))
    best = theory.best_window(tau, span, steps, parts=10, **known)
    now, then = (
        theory.fedfix_terms(tau, length, span, steps, **known).total for length in (dt, best)
    )
    if then < now:
        gain = f"{then / now:.2g} × that of dt = {dt:g}"
        yield (
            f"window: dt = {best:.3g} has the least bound of τ_max/k, {gain} (E eq. 4.42, up to "
            "constants)"
        )
    else:
        yield (
            f"window: dt = {dt:g} has a bound as good as any τ_max/k (E eq. 4.42, up to constants)"
        )


def _temperature(seen: Seen) -> Iterator[str]:
    weighting, losses = seen.scheme.weighting, seen.table.get("before")
    tilt = traits_of(weighting, WeightingTraits).tilt
    if tilt is None or tilt.of != "loss" or losses is None or np.ptp(losses) <= 0:
        return
    enough = theory.least_temperature(float(np.ptp(losses)), KEPT)
    yield (
        f"{tilt.option}: from {enough:.3g} on every client keeps half of its importance, π ≥ "
        f"{KEPT:g} (A eq. 17)"
    )
