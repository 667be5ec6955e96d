"""E[omega_i] of a composition, in closed form or from a simulation of the schedule."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from poise import theory
from poise.analysis.explain.schedule import Schedule, simulate
from poise.config.run_options import RunOptions
from poise.core.capabilities import (
    ClientFacts,
    EndsWith,
    HasStatistics,
    HasStatisticsGiven,
    KnowsLongRunWeights,
    KnowsMeanCoefficients,
    LongRun,
)
from poise.core.errors import PoiseError
from poise.core.parts import is_part
from poise.core.protocols import Clock, Fits, HasName, Sampler, Weighting
from poise.core.statistics import WeightStatistics
from poise.core.traits import (
    AggregatorTraits,
    ClockTraits,
    SamplerTraits,
    WeightingTraits,
    still_holds,
    traits_of,
)
from poise.core.types import Floats, Setting
from poise.engine.plan import Parts
from poise.weightings import Proportional

SAME = 1e-9
"""Objectives that differ by less than this in total variation count as equal."""

SCHEDULE_ARRIVALS = 8_000  # if only the schedule is needed
DRAWS = 4_000  # for a sampler without closed form


@dataclass(frozen=True)
class Scheme:
    """The mean weights of the clients, and the schedule behind them.

    Args:
        mean: E[omega_i], (N,).
        half_width: half-widths of the 95 % intervals of ``mean``; None for a closed
            form.
        method: how ``mean`` was computed, in words.
        statistics: weight statistics of the sampler, if known.
        shares: long-run share of aggregations with each client, if all clients restart
            at once.
        balance: d_i of the clock, (N,).
        schedule: the simulated schedule.
        weighting: the weighting at the end of training.
        where: the model at which loss-based parts were evaluated, in words.
    """

    mean: Floats
    half_width: Floats | None
    method: str
    statistics: WeightStatistics | None
    shares: Floats | None
    balance: Floats | None
    schedule: Schedule
    weighting: Weighting
    where: str = "at the initial model"

    @property
    def exact(self) -> bool:
        """Whether the mean weights are known in closed form."""
        return self.half_width is None

    def distance(
        self, importance: Floats, progress: Floats | float = 1.0
    ) -> tuple[float, tuple[float, float] | None]:
        """chi^2 of the objective; for estimates, a 95 % basic bootstrap interval."""
        ones = np.ones(len(self.mean)) * progress
        point = theory.chi_squared(importance, theory.with_local_work(self.mean, ones))
        if point < 1e-15:
            point = 0.0
        if (
            self.half_width is None
            or not np.isfinite(point)
            or not self.half_width.any()
        ):
            return point, None
        rng = np.random.default_rng(0)
        drawn = (
            self.mean + rng.normal(size=(200, len(self.mean))) * self.half_width / 1.96
        )
        drawn = np.maximum(drawn, 1e-3 * self.mean)
        values = [
            theory.chi_squared(importance, theory.with_local_work(q, ones))
            for q in drawn
        ]
        low = 2 * point - float(np.quantile(values, 0.975))
        high = 2 * point - float(np.quantile(values, 0.025))
        return point, (max(low, 0.0), max(high, 0.0))

    def biased(self, importance: Floats, progress: Floats | float = 1.0) -> bool:
        """Whether the objective differs from the requested one, beyond the error."""
        point, interval = self.distance(importance, progress)
        if interval is not None:
            return interval[0] > 0
        objective = theory.with_local_work(
            self.mean, np.ones(len(self.mean)) * progress
        )
        return (
            not np.isfinite(point)
            or theory.total_variation(importance, objective) > SAME
        )


def name_of(part: Fits) -> str:
    """The registered name of a part; the class name of a user-defined part."""
    if isinstance(part, HasName) and is_part(part):
        return part.name
    return type(part).__name__


def last_stage(weighting: Weighting) -> Weighting:
    """The weighting at the end of training: the last stage of `Switch` or `Anneal`."""
    while isinstance(weighting, EndsWith):
        weighting = weighting.finally_used
    return weighting


def by_losses(weighting: Weighting) -> bool:
    """Whether a weighting, or its inner weighting, reads losses."""
    return bool(set(weighting.needs) & {"loss_before", "loss_after"})


def reads_updates(parts: Parts) -> bool:
    """Whether the weighting at the end of training reads the updates themselves."""
    return traits_of(last_stage(parts.weighting), WeightingTraits).reads_updates


def scheme_of(
    parts: Parts, setting: Setting, table: dict[str, Floats], options: RunOptions
) -> Scheme:
    """The mean weights that sampler, clock, weighting and aggregator give together."""
    scheme = _scheme_of_arrivals(parts, setting, table, options)
    if not traits_of(parts.aggregator, AggregatorTraits).latest:
        return scheme
    p = np.asarray(setting.importance, dtype=np.float64)
    clock = traits_of(parts.clock, ClockTraits)
    if clock.one_version and clock.leaves_clients_behind and selects_everyone(parts):
        # late answers are left out: a client that is never in time never counts
        p = np.where(scheme.schedule.counts > 0, p, 0.0)
    if traits_of(scheme.weighting, WeightingTraits).proportional:
        return replace(scheme, mean=p, half_width=None, method="closed form")
    # every answer counts until the next: p_i times its mean coefficient over base weight
    ended = replace(parts, weighting=scheme.weighting)
    schedule = simulate(ended, setting, table, options)
    ratio, spread = schedule.ratio()
    return replace(
        scheme,
        mean=p * np.where(p > 0, ratio, 0.0),
        half_width=p * np.where(p > 0, spread, 0.0),
        method=f"estimated from {schedule.aggregations} simulated aggregations",
    )


def _scheme_of_arrivals(
    parts: Parts, setting: Setting, table: dict[str, Floats], options: RunOptions
) -> Scheme:
    """The mean weights of the clients that arrive."""
    weighting = last_stage(parts.weighting)
    ended = replace(parts, weighting=weighting)
    statistics = statistics_of(parts.sampler, setting, table)
    shares = None
    balance = None
    if selects_everyone(parts):
        shares = shares_of(parts.clock, setting)
    if shares is not None:
        balance = np.asarray(setting.importance / shares)
    exact = closed_form(ended, setting, statistics, shares)
    if exact is not None:
        schedule = simulate(
            replace(parts, weighting=Proportional()),
            setting,
            table,
            options,
            budget=SCHEDULE_ARRIVALS,
        )
        method = "closed form"
        if traits_of(weighting, WeightingTraits).times in ("estimated", "elapsed"):
            method = "in the long run"
        return Scheme(
            mean=exact,
            half_width=None,
            method=method,
            statistics=statistics,
            shares=shares,
            balance=balance,
            schedule=schedule,
            weighting=weighting,
        )
    schedule = simulate(ended, setting, table, options)
    mean = schedule.mean
    half = schedule.half_width
    if (
        waits_for_all(parts.clock)
        and statistics is not None
        and not statistics.estimated
    ):
        # the statistics of the sampler are exact: only the ratio needs the simulation
        ratio, spread = schedule.ratio(table.get("like"))
        known = np.isfinite(ratio)
        mean = statistics.mean * np.where(known, ratio, np.nanmean(ratio))
        half = statistics.mean * np.where(known, spread, np.nanmean(ratio))
    method = f"estimated from {schedule.aggregations} simulated aggregations"
    return Scheme(
        mean=mean,
        half_width=half,
        method=method,
        statistics=statistics,
        shares=shares,
        balance=balance,
        schedule=schedule,
        weighting=weighting,
    )


def waits_for_all(clock: Clock) -> bool:
    """Whether the clock waits for every selected client."""
    return not traits_of(clock, ClockTraits).leaves_clients_behind


def selects_everyone(parts: Parts) -> bool:
    """Whether the sampler selects every client in every round."""
    return traits_of(parts.sampler, SamplerTraits).selects_everyone


def closed_form(
    parts: Parts,
    setting: Setting,
    statistics: WeightStatistics | None,
    shares: Floats | None,
) -> Floats | None:
    """E[omega_i] in closed form, or None."""
    weighting = parts.weighting
    if not isinstance(weighting, KnowsMeanCoefficients) or not still_holds(
        weighting, "mean_coefficients"
    ):
        return None
    mean = weighting.mean_coefficients(long_run(parts, setting, statistics, shares))
    if mean is None:
        return None
    return np.asarray(mean)


def long_run(
    parts: Parts,
    setting: Setting,
    statistics: WeightStatistics | None,
    shares: Floats | None,
) -> LongRun:
    """How often each client arrives, and its mean base weight if known."""
    p = np.asarray(setting.importance, dtype=np.float64)
    if not waits_for_all(parts.clock):
        return LongRun(setting, parts.clock, p, shares)
    base = None
    if statistics is not None and not statistics.estimated:
        base = statistics.mean
    return LongRun(setting, parts.clock, base, np.ones(len(p)))


def statistics_of(
    sampler: Sampler, setting: Setting, table: dict[str, Floats]
) -> WeightStatistics | None:
    """The sampler's weight statistics at known losses and norms; None if unknown."""
    p = np.asarray(setting.importance, dtype=np.float64)
    draws = int(np.clip(2e7 / len(p) ** 1.5, 200, DRAWS))
    known = ClientFacts(
        table.get("before"), table.get("norms"), setting.majority, draws
    )
    try:
        if isinstance(sampler, HasStatisticsGiven) and still_holds(
            sampler, "statistics_given"
        ):
            return sampler.statistics_given(p, known)
        if isinstance(sampler, HasStatistics) and still_holds(sampler, "statistics"):
            return sampler.statistics(p)
    except PoiseError:
        return None
    return None


def shares_of(clock: Clock, setting: Setting) -> Floats | None:
    """Each client's long-run share of aggregations, (N,), if all restart at once."""
    if not isinstance(clock, KnowsLongRunWeights) or not still_holds(
        clock, "unbiased_weights"
    ):
        return None
    try:
        return np.asarray(1 / clock.unbiased_weights(None, np.ones(setting.clients)))
    except PoiseError:
        return None
