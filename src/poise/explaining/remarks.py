"""What is wrong with a composition, in plain words, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from poise import theory
from poise.core.plan import Parts
from poise.core.types import Floats, Setting
from poise.explaining.scheme import SAME, Scheme, by_losses, name_of, waits_for_all
from poise.samplers import MD, ClusteredBySize, Uniform

UNSTEADY = 0.05
"""Standard deviation of the sum of a round's weights up to which uniform sampling counts as steady."""

SLOW = 0.05
"""How far below 1 the mean weights may sum before that is worth a word."""

DIRECTION = {
    "exp": "improve most on their own data count less",
    "max": "have larger losses count more",
    "min": "have smaller losses count more",
    "soft-max": "have larger losses count more",
    "soft-min": "have smaller losses count more",
}

D_RULES = {
    "asynchronous": "d_i = (Σ 1/τ_j) τ_i p_i (E eq. 4.36)",
    "buffered": "d_i = p_i / f_i, f_i the share of aggregations with client i",
    "fixed-window": "d_i = ⌈τ_i/Δt⌉ p_i (E eq. 4.40)",
}


@dataclass(frozen=True)
class Remark:
    """A warning: what it is about, why, and the fix."""

    about: str
    reason: str
    fix: str

    def __str__(self) -> str:
        return f"{self.about}: {self.reason}; {self.fix}"


@dataclass(frozen=True)
class Seen:
    """What remarks are made from."""

    parts: Parts
    setting: Setting
    scheme: Scheme
    objective: Floats  # with local work
    progress: Floats  # a_i
    table: dict[str, Floats]

    @property
    def p(self) -> Floats:
        """The importance asked for."""
        return np.asarray(self.setting.importance, dtype=np.float64)


def remarks(seen: Seen) -> tuple[Remark, ...]:
    """All warnings; none for a composition that minimises what it was asked to, with weights that are not noisy."""
    noisy = [*_uniform(seen), *_absent(seen)]
    biased = [r for rule in (_power_of_choice, _times, _losses, _adjacency) for r in rule(seen)]
    return (*noisy, *(biased or _other(seen)), *_steps(seen))


def factor(value: float) -> str:
    """A factor in words."""
    return f"{value:.2g} ×" if value < 10 else f"{value:.0f} ×"


def _uniform(seen: Seen) -> Iterator[Remark]:
    sampler, p = _sampler(seen), seen.p
    if name_of(sampler) != "uniform" or sampler.m >= len(p) or np.ptp(p) <= SAME * p.max():
        return
    mine, other = Uniform(sampler.m).statistics(p), MD(sampler.m).statistics(p)
    squares, limit = theory.uniform_beats_md(p, sampler.m)
    if squares > limit:
        ratio = theory.variance_ratio(mine, other)
        why = f"variance {ratio:.2g} × MD's; Σ p² = {squares:.3g} > 1/(N−m+1) = {limit:.3g} (E Corollary 2.1)"
        fix = f"use MD({sampler.m}) or ClusteredBySize({sampler.m})"
    elif mine.sum_variance <= UNSTEADY**2:
        return
    else:
        quiet = ClusteredBySize(sampler.m).statistics(p).sigma
        why = (
            f"the weights of a round sum to 1 only in the mean (standard deviation {np.sqrt(mine.sum_variance):.2g}), "
            f"with Σ Var ω = {mine.sigma:.3g} against {quiet:.3g} of ClusteredBySize"
        )
        fix = f"the weights of ClusteredBySize({sampler.m}) always sum to 1"
    yield Remark("uniform sampling with unequal importance", why, fix)


def _sampler(seen: Seen) -> Any:
    return seen.parts.sampler


def _absent(seen: Seen) -> Iterator[Remark]:
    sampler, total = _sampler(seen), float(seen.scheme.mean.sum())
    if getattr(sampler, "absent", "") != "keep" or total >= 1 - SAME:
        return
    why = f"E[ω_i] = {total:.3g} p_i instead of p_i: a round goes {total:.3g} of the way (E section 3.1)"
    fix = f"use Uniform({sampler.m}), whose weights make up for the absent, or MD({sampler.m})"
    yield Remark("absent clients keep the old model", why, fix)


def _power_of_choice(seen: Seen) -> Iterator[Remark]:
    sampler, found = _sampler(seen), seen.scheme.statistics
    if name_of(sampler) != "power-of-choice" or found is None:
        return
    most = int(np.argmax(found.mean / np.maximum(seen.p, 1e-300)))
    never = int((found.mean == 0).sum())
    unheard = f"; {never} clients are never chosen at these losses" if never else ""
    why = (
        "it asks whoever has the largest loss, so the objective is a surrogate: "
        f"χ² ≈ {theory.chi_squared(seen.p, found.mean):.3g}, client {most} counts "
        f"{factor(found.mean[most] / seen.p[most])} its importance{unheard} (estimated {seen.scheme.where})"
    )
    fix = f"use MD({sampler.m}) or ClusteredBySize({sampler.m}) to minimise what was asked for"
    yield Remark("power-of-choice is biased", why, fix)


def _times(seen: Seen) -> Iterator[Remark]:
    """Weights that do not make up for how often each client answers."""
    parts, scheme, p = seen.parts, seen.scheme, seen.p
    if waits_for_all(parts.clock) or by_losses(scheme.weighting) or name_of(scheme.weighting) == "time-based":
        return
    total, clock = float(scheme.mean.sum()), type(parts.clock).__name__
    everyone = getattr(parts.sampler, "everyone", False) and scheme.shares is not None
    fix = "use TimeBased()" if everyone else "use TimeBased(times='estimated')"
    if not scheme.biased(p):
        if total < 1 - SLOW:
            why = f"the mean weights sum to {total:.2g}, so the model moves that much slower than it could"
            yield Remark(f"{clock} with {type(scheme.weighting).__name__}", why, fix)
        return
    kappa = theory.normalised(scheme.mean) / np.maximum(p, 1e-300)
    up, down = int(kappa.argmax()), int(kappa.argmin())
    rule = D_RULES.get(name_of(parts.clock)) if scheme.balance is not None else None
    needs = "" if rule is None or scheme.balance is None else (
        f"the weights are not {rule}, client {down} would need d = {scheme.balance[down]:.3g}; ")  # fmt: skip
    passed = "whoever is drawn while at work is passed over"
    reason = "whoever answers more often counts more" if getattr(parts.sampler, "everyone", False) else passed
    why = (
        f"{needs}{reason}, so client {up} counts {factor(kappa[up])} its importance and "
        f"client {down} {factor(kappa[down])}: χ² = {theory.chi_squared(p, scheme.mean):.3g} from what was asked for"
    )
    yield Remark(f"{clock} with {type(scheme.weighting).__name__} weights", why, fix)


def _losses(seen: Seen) -> Iterator[Remark]:
    weighting, p, q = seen.scheme.weighting, seen.p, theory.normalised(seen.scheme.mean)
    if not by_losses(weighting):
        return
    kappa = q / np.maximum(p, 1e-300)
    if not seen.scheme.biased(p):
        return
    off = theory.total_variation(p, q)
    inner = getattr(weighting, "of", weighting)
    up, down = int(kappa.argmax()), int(kappa.argmin())
    why = (
        f"clients that {DIRECTION.get(name_of(inner), 'report other losses count otherwise')}: κ = ω/p from "
        f"{kappa[down]:.2g} (client {down}) to {kappa[up]:.2g} (client {up}), {off:.0%} of the weight moves, "
        f"χ² ≈ {theory.chi_squared(p, q):.3g}, {seen.scheme.where}"
    )
    yield Remark(f"{type(weighting).__name__} minimises a surrogate", why, _milder(seen, inner))


def _milder(seen: Seen, weighting: Any) -> str:
    """The temperature from which on nobody counts less than half, or another weighting."""
    losses = seen.table.get("before")
    if name_of(weighting) in ("soft-max", "soft-min") and losses is not None:
        enough = theory.least_temperature(float(np.ptp(losses)), 0.5)
        return f"temperature ≥ {enough:.3g} keeps every κ above 1/2 (A eq. 17), Proportional() keeps the objective"
    if name_of(weighting) == "exp" and losses is not None:
        enough = theory.least_temperature(float(np.ptp(seen.table["before"] - seen.table["after"])), 0.5)
        return f"alpha ≥ {enough:.3g} keeps every κ above 1/2, Proportional() keeps the objective"
    return "use Proportional() to keep the objective, or Switch to it when speed no longer matters (A section 3.2)"


def _adjacency(seen: Seen) -> Iterator[Remark]:
    if name_of(seen.scheme.weighting) != "adjacency" or not seen.scheme.biased(seen.p):
        return
    chi2 = theory.chi_squared(seen.p, seen.scheme.mean)
    why = (
        f"clients count by how many others are like them, χ² = {chi2:.3g} from the importance asked for (C section 4.3)"
    )
    yield Remark("Adjacency minimises its own objective", why, "use Proportional() to keep the importance asked for")


def _other(seen: Seen) -> Iterator[Remark]:
    """A bias that none of the known parts explains."""
    if not seen.scheme.biased(seen.p):
        return
    sampler, weighting = type(seen.parts.sampler).__name__, type(seen.scheme.weighting).__name__
    chi2 = theory.chi_squared(seen.p, seen.scheme.mean)
    why = f"the mean weights of a client are not its importance: χ² = {chi2:.3g} from what was asked for"
    yield Remark(f"{sampler} with {weighting}", why, "give those that are drawn weights with mean p_i, or use MD")


def _steps(seen: Seen) -> Iterator[Remark]:
    a = seen.progress
    if np.ptp(a) <= SAME * a.max():
        return
    q = theory.normalised(seen.scheme.mean)
    most, least = int(a.argmax()), int(a.argmin())
    chi2 = theory.chi_squared(q, seen.objective)
    why = (
        f"client {most} makes {a[most] / a[least]:.3g} × the local progress of client {least} and counts more by that: "
        f"the objective has weights q_i a_i, χ² = {chi2:.3g} (objective inconsistency, E Theorem A.1)"
    )
    yield Remark("unequal local steps", why, "give steps= instead of epochs=, or use Scaffold")
