"""The bound of [Fraboni 2023, ch. 4] for clocks that do not wait, and where it does not hold."""

from __future__ import annotations

from math import isfinite

import numpy as np

from poise import theory
from poise.analysis.explain.constants import Constants
from poise.analysis.explain.remarks import ExplainContext, in_theory
from poise.analysis.explain.scheme import selects_everyone
from poise.core.durations import FixedDurations
from poise.core.traits import ClockTraits, WeightingTraits, traits_of
from poise.theory import Terms


def uncovered_schedule(context: ExplainContext) -> str:
    """Why no closed form covers the schedule or its weights; empty if one does."""
    clock = context.parts.clock
    if clock.waits or not in_theory(context.parts):
        return ""
    schedule = traits_of(clock, ClockTraits).schedule
    name = type(clock).__name__
    if schedule is None:
        return f"{name} without windows of one length or single answers"
    if not isinstance(clock.times(context.setting.clients), FixedDurations):
        return "work times that are not fixed"
    if not selects_everyone(context.parts):
        return f"clients that {type(context.parts.sampler).__name__} selects"
    varies = traits_of(context.scheme.weighting, WeightingTraits).times == "elapsed"
    if varies and schedule == "asynchronous":
        return "weights that differ from answer to answer"
    return ""


def late_bounds(
    context: ExplainContext,
    constants: Constants,
    steps: int,
    rounds: float,
    rates: tuple[float | None, float],
) -> list[Terms]:
    """The bound for fixed durations and immediate restarts.

    ``rates`` are the local learning rate (None where the steps are no plain ones) and
    that of the server.
    """
    scheme = context.scheme
    problem = constants.problem()
    clock = traits_of(context.parts.clock, ClockTraits)
    rate, server = rates
    times = context.parts.clock.times(context.setting.clients)
    known = isfinite(problem.distance) and isfinite(problem.smoothness)
    if not known or rate is None or scheme.shares is None or clock.schedule is None:
        return []
    if uncovered_schedule(context):
        return []
    assert isinstance(times, FixedDurations)
    tau = times.mean(context.setting.clients)
    dt = clock.window
    weights = scheme.mean / scheme.shares
    spread = float(scheme.mean @ np.full(len(tau), problem.gradient))
    largest = float(weights.max())
    covariance = 1.0
    excess = 0.0
    sum_of_weights = float(weights.sum())
    if clock.schedule == "asynchronous":  # one client in each aggregation
        covariance = 0.0
        excess = largest
        sum_of_weights = largest
    return [
        theory.asynchronous_bound(
            problem,
            steps,
            rounds,
            rate,
            staleness=theory.staleness(clock.schedule, tau, dt),
            window=theory.window(clock.schedule, tau, dt),
            covariance=covariance,
            excess=excess,
            residual=problem.heterogeneity,
            variance=spread,
            largest=largest,
            server_rate=server,
            sum_of_weights=sum_of_weights,
        )
    ]
