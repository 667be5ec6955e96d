"""What is wrong with a composition, in plain words, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from poise import theory
from poise.analysis.explain.scheme import (
    SAME,
    Scheme,
    by_losses,
    name_of,
    selects_everyone,
    waits_for_all,
)
from poise.core.capabilities import WrapsWeighting
from poise.core.protocols import Weighting
from poise.core.traits import (
    AggregatorTraits,
    ChannelTraits,
    ClockTraits,
    SamplerTraits,
    WeightingTraits,
    traits_of,
    undeclared,
)
from poise.core.types import Floats, Setting
from poise.engine.plan import Parts
from poise.samplers import MD, ClusteredBySize, Uniform

UNSTEADY = 0.05
"""Standard deviation of the sum of a round's weights up to which uniform sampling counts as
steady."""

SLOW = 0.05
"""How far below 1 the mean weights may sum before that is worth a word."""


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
    opaque: bool = False  # the weighting reads the updates themselves

    @property
    def p(self) -> Floats:
        """The importance asked for."""
        return np.asarray(self.setting.importance, dtype=np.float64)


def remarks(seen: Seen) -> tuple[Remark, ...]:
    """All warnings; none for a composition that minimises what it was asked to, with weights that
    are not noisy.
    """
    noisy = [*_uniform(seen), *_absent(seen)]
    biased = [r for rule in (_loss_favouring, _times, _losses, _adjacency) for r in rule(seen)]
    return (*unknowns(seen), *noisy, *(biased or _other(seen)), *_steps(seen))


def unknowns(seen: Seen) -> tuple[Remark, ...]:
    """Why nobody can say before training what is minimised; empty where it is known."""
    if not seen.opaque:
        return tuple(beyond_theory(seen.parts))
    why = "its coefficients depend on the updates themselves, which nobody knows before training"
    name = type(seen.parts.weighting).__name__
    return (
        Remark(name, why, "use Proportional() to know what is minimised"),
        *beyond_theory(seen.parts),
    )


def in_theory(parts: Parts) -> bool:
    """Whether the direction is a weighted sum of the updates that clients made: what all closed
    forms are about.
    """
    return not list(beyond_theory(parts))


def beyond_theory(parts: Parts) -> Iterator[Remark]:
    """Parts that no closed form and no bound speaks of."""
    if not traits_of(parts.aggregator, AggregatorTraits).linear:
        name = undeclared(parts.aggregator, AggregatorTraits) or type(parts.aggregator).__name__
        why = "the direction is no weighted sum of the updates, so no closed form and no bound speaks of it"
        yield Remark(name, why, "use WeightedSum() to know what is minimised")
    if not traits_of(parts.channel, ChannelTraits).identity:
        name = undeclared(parts.channel, ChannelTraits) or type(parts.channel).__name__
        why = "updates do not arrive as clients made them, so no closed form and no bound speaks of them"
        yield Remark(name, why, "use Plain() to know what is minimised")
    if parts.personal is not None:
        why = "every client has a model of its own, so no closed form and no bound speaks of one model"
        yield Remark(
            type(parts.personal).__name__, why, "leave personal out to know what is minimised"
        )


def factor(value: float) -> str:
    """A factor in words."""
    return f"{value:.2g} ×" if value < 10 else f"{value:.0f} ×"


def _uniform(seen: Seen) -> Iterator[Remark]:
    drawn, p = traits_of(seen.parts.sampler, SamplerTraits), seen.p
    m = drawn.per_round
    if drawn.law != "uniform" or m is None or m >= len(p) or np.ptp(p) <= SAME * p.max():
        return
    mine, other = Uniform(m).statistics(p), MD(m).statistics(p)
    squares, limit = theory.uniform_beats_md(p, m)
    if squares > limit:
        ratio = theory.variance_ratio(mine, other)
        why = f"variance {ratio:.2g} × MD's; Σ p² = {squares:.3g} > 1/(N−m+1) = {limit:.3g} (E Corollary 2.1)"
        fix = f"use MD({m}) or ClusteredBySize({m})"
    elif mine.sum_variance <= UNSTEADY**2:
        return
    else:
        quiet = ClusteredBySize(m).statistics(p).sigma
        why = (
            f"the weights of a round sum to 1 only in the mean (standard deviation {np.sqrt(mine.sum_variance):.2g}), "
            f"with Σ Var ω = {mine.sigma:.3g} against {quiet:.3g} of ClusteredBySize"
        )
        fix = f"the weights of ClusteredBySize({m}) always sum to 1"
    yield Remark("uniform sampling with unequal importance", why, fix)


def _absent(seen: Seen) -> Iterator[Remark]:
    drawn, total = traits_of(seen.parts.sampler, SamplerTraits), float(seen.scheme.mean.sum())
    if not drawn.absent_keep or total >= 1 - SAME:
        return
    m = drawn.per_round
    why = f"E[ω_i] = {total:.3g} p_i instead of p_i: a round goes {total:.3g} of the way (E section 3.1)"
    fix = f"use Uniform({m}), whose weights make up for the absent, or MD({m})"
    yield Remark("absent clients keep the old model", why, fix)


def _loss_favouring(seen: Seen) -> Iterator[Remark]:
    drawn, found = traits_of(seen.parts.sampler, SamplerTraits), seen.scheme.statistics
    if not drawn.favours_losses or found is None:
        return
    most = int(np.argmax(found.mean / np.maximum(seen.p, 1e-300)))
    never = int((found.mean == 0).sum())
    unheard = f"; {never} clients are never chosen at these losses" if never else ""
    why = (
        "it asks whoever has the largest loss, so the objective is a surrogate: "
        f"χ² ≈ {theory.chi_squared(seen.p, found.mean):.3g}, client {most} counts "
        f"{factor(found.mean[most] / seen.p[most])} its importance{unheard} (estimated {seen.scheme.where})"
    )
    m = drawn.per_round
    fix = f"use MD({m}) or ClusteredBySize({m}) to minimise what was asked for"
    yield Remark(f"{name_of(seen.parts.sampler)} is biased", why, fix)


def _times(seen: Seen) -> Iterator[Remark]:
    """Weights that do not make up for how often each client answers."""
    parts, scheme, p = seen.parts, seen.scheme, seen.p
    made_up = traits_of(scheme.weighting, WeightingTraits).times is not None
    if waits_for_all(parts.clock) or by_losses(scheme.weighting) or made_up:
        return
    total, clock = float(scheme.mean.sum()), type(parts.clock).__name__
    everyone = selects_everyone(parts) and scheme.shares is not None
    fix = "use TimeBased()" if everyone else "use TimeBased(times='estimated')"
    if not scheme.biased(p):
        if total < 1 - SLOW:
            why = f"the mean weights sum to {total:.2g}, so the model moves that much slower than it could"
            yield Remark(f"{clock} with {type(scheme.weighting).__name__}", why, fix)
        return
    kappa = theory.normalised(scheme.mean) / np.maximum(p, 1e-300)
    up, down = int(kappa.argmax()), int(kappa.argmin())
    rule = traits_of(parts.clock, ClockTraits).balance_rule
    needs = ""
    if rule and scheme.balance is not None:
        needs = (
            f"the weights are not {rule}, client {down} would need d = {scheme.balance[down]:.3g}; "
        )
    reason = "whoever is drawn while at work is passed over"
    if selects_everyone(parts):
        reason = "whoever answers more often counts more"
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
    inner = weighting.inner if isinstance(weighting, WrapsWeighting) else weighting
    favours = traits_of(inner, WeightingTraits).favours or "report other losses count otherwise"
    up, down = int(kappa.argmax()), int(kappa.argmin())
    why = (
        f"clients that {favours}: κ = ω/p from "
        f"{kappa[down]:.2g} (client {down}) to {kappa[up]:.2g} (client {up}), {off:.0%} of the weight moves, "
        f"χ² ≈ {theory.chi_squared(p, q):.3g}, {seen.scheme.where}"
    )
    yield Remark(f"{type(weighting).__name__} minimises a surrogate", why, _milder(seen, inner))


def _milder(seen: Seen, weighting: Weighting) -> str:
    """The temperature from which on nobody counts less than half, or another weighting."""
    losses, tilt = seen.table.get("before"), traits_of(weighting, WeightingTraits).tilt
    if losses is not None and tilt is not None:
        by_loss = tilt.of == "loss"
        values = losses if by_loss else losses - seen.table["after"]
        enough = theory.least_temperature(float(np.ptp(values)), 0.5)
        source = " (A eq. 17)" if by_loss else ""
        return f"{tilt.option} ≥ {enough:.3g} keeps every κ above 1/2{source}, Proportional() keeps the objective"
    return "use Proportional() to keep the objective, or Switch to it when speed no longer matters (A section 3.2)"


def _adjacency(seen: Seen) -> Iterator[Remark]:
    by_degree = traits_of(seen.scheme.weighting, WeightingTraits).by_similarity
    if not by_degree or not seen.scheme.biased(seen.p):
        return
    chi2 = theory.chi_squared(seen.p, seen.scheme.mean)
    why = f"clients count by how many others are like them, χ² = {chi2:.3g} from the importance asked for (C section 4.3)"
    about = f"{type(seen.scheme.weighting).__name__} minimises its own objective"
    yield Remark(about, why, "use Proportional() to keep the importance asked for")


def _other(seen: Seen) -> Iterator[Remark]:
    """A bias that none of the known parts explains."""
    if not seen.scheme.biased(seen.p):
        return
    sampler, weighting = type(seen.parts.sampler).__name__, type(seen.scheme.weighting).__name__
    chi2 = theory.chi_squared(seen.p, seen.scheme.mean)
    why = f"the mean weights of a client are not its importance: χ² = {chi2:.3g} from what was asked for"
    yield Remark(
        f"{sampler} with {weighting}",
        why,
        "give those that are drawn weights with mean p_i, or use MD",
    )


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
