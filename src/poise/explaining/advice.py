"""What the theory would choose."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import Any

import numpy as np

from poise import theory
from poise.core.durations import FixedDurations
from poise.explaining.constants import Constants
from poise.explaining.remarks import Seen
from poise.explaining.scheme import name_of

KEPT = 0.5
"""The least share of its importance that advice on temperatures leaves to every client."""


def advice(seen: Seen, constants: Constants | None, rounds: float, time: float | None) -> tuple[str, ...]:
    """Where a paper gives a choice: local steps, sampler, window, temperature."""
    found = [*_sampler(seen), *_window(seen, constants, time), *_temperature(seen)]
    return (*found, *(_steps(seen, constants, rounds) if constants is not None else ()))


def _steps(seen: Seen, constants: Constants, rounds: float) -> Iterator[str]:
    problem, beta = constants.problem(), float(getattr(seen.parts.solver, "beta", 1.0))
    if not isfinite(problem.gradient) or problem.gradient <= 0 or not isfinite(problem.smoothness):
        return
    now = int(np.median(seen.parts.solver.steps_for(np.asarray(seen.setting.sizes)[:1000])))
    if isfinite(problem.heterogeneity) and isfinite(problem.noise):
        best, where = theory.best_steps(problem, beta), "C section 4.4, strongly convex, falling rates"
    elif isfinite(problem.gap) and isfinite(problem.noise) and rounds >= 1:
        best, where = theory.best_steps_nonconvex(problem, int(rounds), beta), "C Corollary 4.1"
    else:
        return
    yield f"local steps: the bound is least at E ≈ {max(best, 1):.3g} ({where}); there are {now}"


def _sampler(seen: Seen) -> Iterator[str]:
    sampler: Any = seen.parts.sampler
    m = getattr(sampler, "m", None)
    if m is None or m >= seen.setting.clients or name_of(sampler) not in ("uniform", "md"):
        return
    squares, limit = theory.uniform_beats_md(seen.p, m)
    better, sign = ("Uniform", "≤") if squares <= limit else ("MD", ">")
    why = f"Σ p² = {squares:.3g} {sign} 1/(N−m+1) = {limit:.3g}"
    yield f"sampler: {better}({m}) has the better bound of uniform and MD, {why} (E Corollary 2.1)"


def _window(seen: Seen, constants: Constants | None, time: float | None) -> Iterator[str]:
    clock: Any = seen.parts.clock
    times = clock.times(seen.setting.clients) if name_of(clock) == "fixed-window" else None
    if not isinstance(times, FixedDurations):
        return
    tau = times.mean(seen.setting.clients)
    known: dict[str, float] = {}
    if constants is not None:
        pairs = {"distance": constants.distance, "residual": constants.heterogeneity, "variance": constants.gradient}
        known = {k: c.value for k, c in pairs.items() if c.known}
    steps = int(np.median(seen.parts.solver.steps_for(np.asarray(seen.setting.sizes))))
    span = max(100 * float(tau.max()) if time is None else time, float(tau.max()))
    best = theory.best_window(tau, span, steps, parts=10, **known)
    now, then = (theory.fedfix_terms(tau, dt, span, steps, **known).total for dt in (clock.dt, best))
    if then < now:
        gain = f"{then / now:.2g} × that of dt = {clock.dt:g}"
        yield f"window: dt = {best:.3g} has the least bound of τ_max/k, {gain} (E eq. 4.42, up to constants)"
    else:
        yield f"window: dt = {clock.dt:g} has a bound as good as any τ_max/k (E eq. 4.42, up to constants)"


def _temperature(seen: Seen) -> Iterator[str]:
    weighting, losses = seen.scheme.weighting, seen.table.get("before")
    if name_of(weighting) not in ("soft-max", "soft-min") or losses is None or np.ptp(losses) <= 0:
        return
    enough = theory.least_temperature(float(np.ptp(losses)), KEPT)
    yield f"temperature: from {enough:.3g} on every client keeps half of its importance, π ≥ {KEPT:g} (A eq. 17)"
