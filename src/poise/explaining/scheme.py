"""E[omega_i] of a composition: in closed form where there is one, else by simulating that part alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from poise import theory
from poise.core.errors import PoiseError
from poise.core.plan import Parts
from poise.core.statistics import WeightStatistics
from poise.core.types import Floats, Setting
from poise.explaining.schedule import MOST_ARRIVALS, Schedule, simulate
from poise.weightings import Proportional

SAME = 1e-9
"""Objectives that differ by less than this in total variation are the same."""

SCHEDULE_ARRIVALS = 8_000  # where only the schedule is of interest
DRAWS = 4_000  # of a sampler without closed form


@dataclass(frozen=True)
class Scheme:
    """How often and how much each client counts."""

    mean: Floats  # E[omega_i], (N,)
    half_width: Floats | None  # of 95 % intervals, None for a closed form
    method: str
    statistics: WeightStatistics | None  # of the sampler
    shares: Floats | None  # long-run share of aggregations with each client, where everyone starts again at once
    balance: Floats | None  # d_i of the clock, (N,)
    schedule: Schedule
    weighting: Any  # the one that counts in the end
    where: str = "at the first losses"  # at which model parts that decide by losses were looked at

    @property
    def exact(self) -> bool:
        """Whether the mean weights are known in closed form."""
        return self.half_width is None

    def distance(self, importance: Floats, progress: Floats | float = 1.0) -> tuple[float, tuple[float, float] | None]:
        """chi^2 of the objective, and a 95 % interval (basic bootstrap) where the weights were estimated."""
        ones = np.ones(len(self.mean)) * progress
        point = theory.chi_squared(importance, theory.with_local_work(self.mean, ones))
        point = 0.0 if point < 1e-15 else point
        if self.half_width is None or not np.isfinite(point) or not self.half_width.any():
            return point, None
        rng = np.random.default_rng(0)
        drawn = self.mean + rng.normal(size=(200, len(self.mean))) * self.half_width / 1.96
        drawn = np.maximum(drawn, 1e-3 * self.mean)
        found = [theory.chi_squared(importance, theory.with_local_work(q, ones)) for q in drawn]
        low, high = (2 * point - float(np.quantile(found, share)) for share in (0.975, 0.025))
        return point, (max(low, 0.0), max(high, 0.0))

    def biased(self, importance: Floats, progress: Floats | float = 1.0) -> bool:
        """Whether another objective is minimised than the one asked for, beyond what the estimate leaves open."""
        point, interval = self.distance(importance, progress)
        if interval is not None:
            return interval[0] > 0
        apart = theory.with_local_work(self.mean, np.ones(len(self.mean)) * progress)
        return not np.isfinite(point) or theory.total_variation(importance, apart) > SAME


def name_of(part: Any) -> str:
    """The registered name of a part; the class name of a user's own."""
    return str(getattr(part, "name", type(part).__name__))


def last_stage(weighting: Any) -> Any:
    """The weighting that is used in the end: of a `Switch` or an `Anneal` the last."""
    while name_of(weighting) in ("switch", "anneal"):
        weighting = weighting.stages[-1][1] if name_of(weighting) == "switch" else weighting.end
    return weighting


def by_losses(weighting: Any) -> bool:
    """Whether a weighting, or one inside it, looks at losses."""
    return bool(set(weighting.needs) & {"loss_before", "loss_after"})


def scheme_of(parts: Parts, setting: Setting, table: dict[str, Floats], seed: int, rounds: int | None,
              time: float | None) -> Scheme:  # fmt: skip
    """Look at sampler, clock and weighting together."""
    weighting = last_stage(parts.weighting)
    ended = replace(parts, weighting=weighting)
    statistics = statistics_of(parts.sampler, setting, table)
    shares = shares_of(parts.clock, setting) if getattr(parts.sampler, "everyone", False) else None
    balance = None if shares is None else np.asarray(setting.importance / shares)
    found = closed_form(ended, setting, statistics, shares)
    plain = replace(parts, weighting=Proportional()) if found is not None else ended
    budget = MOST_ARRIVALS if found is None else SCHEDULE_ARRIVALS
    schedule = simulate(plain, setting, table, seed, rounds, time, budget)
    if found is not None:
        long = "in the long run" if getattr(weighting, "times", "") == "estimated" else "closed form"
        return Scheme(found, None, long, statistics, shares, balance, schedule, weighting)
    mean, half = schedule.mean, schedule.half_width
    if waits_for_all(parts.clock) and statistics is not None and name_of(parts.sampler) != "power-of-choice":
        ratio, spread = schedule.ratio(table.get("like"))  # the sampler's part is known exactly
        seen = np.isfinite(ratio)
        mean = statistics.mean * np.where(seen, ratio, np.nanmean(ratio))
        half = statistics.mean * np.where(seen, spread, np.nanmean(ratio))
    method = f"estimated from {schedule.aggregations} simulated aggregations"
    return Scheme(mean, half, method, statistics, shares, balance, schedule, weighting)


def waits_for_all(clock: Any) -> bool:
    """Whether everyone who was asked is heard, however long that takes."""
    return bool(clock.waits) and getattr(clock, "deadline", None) is None and getattr(clock, "enough", None) is None


def closed_form(
    parts: Parts, setting: Setting, statistics: WeightStatistics | None, shares: Floats | None
) -> Floats | None:
    """E[omega_i] where it is known."""
    p, clock = np.asarray(setting.importance, dtype=np.float64), parts.clock
    weighting: Any = parts.weighting
    name = name_of(weighting)
    if name == "time-based" and (weighting.times == "estimated" or not waits_for_all(clock)):
        return p
    if waits_for_all(clock):
        known = statistics is not None and name_of(parts.sampler) != "power-of-choice"
        base, heard = (statistics.mean, np.ones(len(p))) if known and statistics is not None else (None, None)
    else:
        base, heard = (None, None) if shares is None else (p, shares)
    if base is None or heard is None:
        return None
    if name in ("proportional", "time-based"):
        return np.asarray(base * heard)
    if name == "identical":
        return np.asarray(clock.identical_weights(base, setting.clients) * heard)
    if name == "adjacency":
        degree = setting.neighbours().sum(axis=1)
        return np.asarray(base * heard * np.divide(degree, p, out=np.zeros_like(p), where=p > 0))
    if name == "discount" and clock.waits:  # nobody is late
        return closed_form(replace(parts, weighting=weighting.of), setting, statistics, shares)
    return None


def statistics_of(sampler: Any, setting: Setting, table: dict[str, Floats]) -> WeightStatistics | None:
    """The sampler's own statistics, with what is known of losses and norms."""
    if not hasattr(sampler, "statistics"):
        return None
    p, name = np.asarray(setting.importance, dtype=np.float64), name_of(sampler)
    try:
        if name == "power-of-choice":
            draws = int(np.clip(2e7 / len(p) ** 1.5, 200, DRAWS))
            found: WeightStatistics = sampler.statistics(p, table.get("before"), draws)
        elif name == "optimal":
            found = sampler.statistics(p, table.get("norms"))
        elif name == "target":
            found = sampler.statistics(p, setting.majority)
        else:
            found = sampler.statistics(p)
    except PoiseError:
        return None
    return found


def shares_of(clock: Any, setting: Setting) -> Floats | None:
    """The long-run share of aggregations with each client, (N,), when everyone starts again at once."""
    if not hasattr(clock, "unbiased_weights"):
        return None
    try:
        return np.asarray(1 / clock.unbiased_weights(None, np.ones(setting.clients)))
    except PoiseError:
        return None
