"""Advice from theory: local steps, sampler, window and temperature."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

import numpy as np

from poise import theory
from poise.analysis.explain.constants import Constants
from poise.analysis.explain.remarks import ExplainContext
from poise.core.durations import FixedDurations, LateStarts
from poise.core.traits import (
    ClockTraits,
    SamplerTraits,
    SolverTraits,
    Tilt,
    WeightingTraits,
    traits_of,
)
from poise.core.types import Floats
from poise.core.weights import effective_clients, mild_temperature, renormalised

KEPT = 0.5
"""Minimum share of its importance that the advised temperature leaves every client."""

UNEVEN = 0.5
"""Range of the sums of weights over windows from which turns are advised."""

WINDOWS = 60
"""Windows that are looked at for this: 60 is a multiple of 1 to 6."""

HALF = 0.5
"""Minimum share of the effective clients that the advised temperature leaves."""


def advice(
    context: ExplainContext,
    constants: Constants | None,
    rounds: float,
    time: float | None,
) -> tuple[str, ...]:
    """The advice of the papers for this composition."""
    texts = [
        *_sampler(context),
        *_window(context, constants, time),
        *_turns(context),
        *_temperature(context),
    ]
    if constants is not None:
        texts += _steps(context, constants, rounds)
    return tuple(texts)


def _steps(
    context: ExplainContext, constants: Constants, rounds: float
) -> Iterator[str]:
    problem = constants.problem()
    beta = traits_of(context.parts.solver, SolverTraits).own_share
    if beta is None:
        beta = 1.0
    if (
        not isfinite(problem.gradient)
        or problem.gradient <= 0
        or not isfinite(problem.smoothness)
    ):
        return
    now = int(
        np.median(
            context.parts.solver.steps_for(np.asarray(context.setting.sizes)[:1000])
        )
    )
    if isfinite(problem.heterogeneity) and isfinite(problem.noise):
        best = theory.best_steps(problem, beta)
        where = "[Buttaci 2024, §4.4], strongly convex, falling rates"
    elif isfinite(problem.gap) and isfinite(problem.noise) and rounds >= 1:
        best = theory.best_steps_nonconvex(problem, int(rounds), beta)
        where = "[Buttaci 2024, Cor. 4.1]"
    else:
        return
    yield (
        f"local steps: the bound is smallest at E ≈ {max(best, 1):.3g} ({where}); "
        f"the current value is {now}"
    )


def _sampler(context: ExplainContext) -> Iterator[str]:
    drawn = traits_of(context.parts.sampler, SamplerTraits)
    m = drawn.per_round
    if m is None or m >= context.setting.clients or drawn.law is None:
        return
    squares, limit = theory.uniform_beats_md(context.p, m)
    better = "MD"
    sign = ">"
    if squares <= limit:
        better = "Uniform"
        sign = "≤"
    why = f"Σ p² = {squares:.3g} {sign} 1/(N−m+1) = {limit:.3g}"
    yield (
        f"sampler: of Uniform and MD, {better}({m}) has the better bound, {why} "
        "[Fraboni 2023, Cor. 2.1]"
    )


def _window(
    context: ExplainContext, constants: Constants | None, time: float | None
) -> Iterator[str]:
    clock = context.parts.clock
    dt = traits_of(clock, ClockTraits).window
    times = clock.times(context.setting.clients)
    if dt is None or not isinstance(times, FixedDurations):
        return
    tau = times.mean(context.setting.clients)
    known: dict[str, float] = {}
    if constants is not None:
        pairs = {
            "distance": constants.distance,
            "residual": constants.heterogeneity,
            "variance": constants.gradient,
        }
        known = {k: c.value for k, c in pairs.items() if c.known}
    steps = int(
        np.median(context.parts.solver.steps_for(np.asarray(context.setting.sizes)))
    )
    if time is None:
        time = 100 * float(tau.max())
    span = max(time, float(tau.max()))
    best = theory.best_window(tau, span, steps, parts=10, **known)
    now, then = (
        theory.fedfix_terms(tau, length, span, steps, printed=False, **known).total
        for length in (dt, best)
    )
    if then < now:
        gain = f"{then / now:.2g} × that of dt = {dt:g}"
        yield (
            f"window: of all τ_max/k, dt = {best:.3g} has the smallest bound, {gain} "
            "([Fraboni 2023, eq. 4.42], up to constants)"
        )
    else:
        yield (
            f"window: the bound of dt = {dt:g} is as good as that of any τ_max/k "
            "([Fraboni 2023, eq. 4.42], up to constants)"
        )


def _turns(context: ExplainContext) -> Iterator[str]:
    """Advise turns where the weights of fixed windows sum to little and much in turn."""
    clock = context.parts.clock
    dt = traits_of(clock, ClockTraits).window
    times = clock.times(context.setting.clients)
    balanced = traits_of(context.scheme.weighting, WeightingTraits).times
    if dt is None or balanced is None or not isinstance(times, FixedDurations):
        return
    if isinstance(times, LateStarts):  # they take turns already
        return
    needed = times.windows(dt, context.setting.clients)
    sums = window_sums(needed, context.p)
    if sums.max() - sums.min() < UNEVEN:
        return
    yield (
        f"stagger: the weights of a window sum to {sums.min():.3g} … {sums.max():.3g}; "
        "with stagger=True clients take turns, and the sums are near 1, so larger "
        "learning rates work"
    )


def window_sums(needed: Floats, p: Floats) -> Floats:
    """The sum of the unbiased weights in each of the first `WINDOWS` fixed windows.

    A client that needs k windows answers in every k-th one, with weight k p_i.

    >>> window_sums(np.array([1.0, 2.0]), np.array([0.5, 0.5]))[:4]
    array([0.5, 1.5, 0.5, 1.5])
    """
    windows = np.arange(1, WINDOWS + 1)
    answers = windows[:, None] % needed[None, :] == 0
    return np.asarray(answers @ (needed * p))


def _temperature(context: ExplainContext) -> Iterator[str]:
    weighting = context.scheme.weighting
    losses = context.table.get("before")
    tilt = traits_of(weighting, WeightingTraits).tilt
    if tilt is None or tilt.of != "loss" or losses is None or np.ptp(losses) <= 0:
        return
    enough = theory.least_temperature(float(np.ptp(losses)), KEPT)
    yield (
        f"{tilt.option}: with {enough:.3g} or more, every client keeps half of its importance, "
        f"π ≥ {KEPT:g} [Mansour 2022, eq. 17]"
    )
    yield from effective_advice(context.p, tilt, losses=losses)


def effective_advice(p: Floats, tilt: Tilt, losses: Floats) -> Iterator[str]:
    """Advise a temperature where the present one leaves few effective clients."""
    if tilt.rate is None:
        return
    exponents = np.sign(tilt.rate) * losses
    present = 1 / abs(tilt.rate)
    known = effective_clients(p)
    left = effective_clients(renormalised(p, exponents / present))
    if left >= HALF * known:
        return
    mild = mild_temperature(p, exponents, least=present, share=HALF)
    yield (
        f"{tilt.option}: {present:.3g} leaves {left:.2g} of {known:.3g} effective "
        f"clients (1/Σ c²) at these losses; {mild:.3g} leaves half"
    )
