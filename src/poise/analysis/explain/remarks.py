"""Warnings about a composition, each with its reason and a fix."""

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
from poise.core.capabilities import LimitsSensitivity, WrapsWeighting
from poise.core.protocols import Weighting
from poise.core.traits import (
    AggregatorTraits,
    ChannelTraits,
    ClockTraits,
    SamplerTraits,
    SolverTraits,
    WeightingTraits,
    traits_of,
    undeclared,
)
from poise.core.types import Floats, Setting
from poise.engine.plan import Parts
from poise.samplers import MD, ClusteredBySize, Uniform

UNSTEADY = 0.05
"""Uniform sampling gets a warning if a round's weight sum deviates more than this."""

SLOW = 0.05
"""Distance of the sum of the mean weights below 1 that gets a warning."""


@dataclass(frozen=True)
class Remark:
    """A warning: subject, reason and fix."""

    about: str
    reason: str
    fix: str

    def __str__(self) -> str:
        return f"{self.about}: {self.reason}; {self.fix}"


@dataclass(frozen=True)
class ExplainContext:
    """The analysed composition, as input of remarks, bounds and advice."""

    parts: Parts
    setting: Setting
    scheme: Scheme
    objective: Floats  # with local work
    progress: Floats  # a_i
    table: dict[str, Floats]
    opaque: bool = False  # the weighting reads the updates themselves

    @property
    def p(self) -> Floats:
        """The requested importance."""
        return np.asarray(self.setting.importance, dtype=np.float64)


def remarks(context: ExplainContext) -> tuple[Remark, ...]:
    """All warnings about bias, noise and unknown objectives."""
    noisy = [*_uniform(context), *_absent(context)]
    biased = [
        r
        for rule in (_loss_favouring, _times, _losses, _adjacency)
        for r in rule(context)
    ]
    return (
        *unknowns(context),
        *_latest(context.parts),
        *noisy,
        *(biased or _other(context)),
        *_steps(context),
    )


def _latest(parts: Parts) -> Iterator[Remark]:
    """Say why no bound covers repeated answers, whose objective is known."""
    if traits_of(parts.aggregator, AggregatorTraits).latest:
        yield Remark(
            type(parts.aggregator).__name__,
            "every aggregation uses the latest answer of every client, so each counts "
            "with p_i however rarely it answers; no bound covers answers that are used "
            "again",
            "lower the learning rate if losses oscillate",
        )


def unknowns(context: ExplainContext) -> tuple[Remark, ...]:
    """The reasons why the objective is unknown before training; empty if known."""
    if not context.opaque:
        return tuple(beyond_theory(context.parts))
    why = "its weights depend on the updates themselves, which are unknown before training"
    name = type(context.parts.weighting).__name__
    return (
        Remark(name, why, "use Proportional() for a known objective"),
        *beyond_theory(context.parts),
    )


def in_theory(parts: Parts) -> bool:
    """Whether the direction is a weighted sum of updates, as closed forms assume."""
    latest = traits_of(parts.aggregator, AggregatorTraits).latest
    return not latest and not list(beyond_theory(parts))


def beyond_theory(parts: Parts) -> Iterator[Remark]:
    """Remarks on parts that no closed form and no bound covers."""
    aggregates = traits_of(parts.aggregator, AggregatorTraits)
    if not aggregates.linear and not aggregates.latest:
        name = (
            undeclared(parts.aggregator, AggregatorTraits)
            or type(parts.aggregator).__name__
        )
        why = (
            "the direction is not a weighted sum of the updates, "
            "so no closed form or bound applies"
        )
        yield Remark(name, why, "use WeightedSum() for a known objective")
    if not traits_of(parts.channel, ChannelTraits).identity:
        name = undeclared(parts.channel, ChannelTraits) or type(parts.channel).__name__
        why = "the channel changes the updates, so no closed form or bound applies"
        yield Remark(name, why, "use Plain() for a known objective")
    if isinstance(parts.sampler, LimitsSensitivity):
        why = (
            f"it leaves out clients whose sensitivity reaches Ψ* = {parts.sampler.limit:.3g}; who "
            "these are depends on their updates, so the objective drifts towards the other "
            "clients, and no closed form or bound applies"
        )
        fix = (
            "explain a run to see whom it left out and the bias (left_out), "
            "or use a larger sigma or epsilon"
        )
        yield Remark(f"{name_of(parts.sampler)} is biased", why, fix)
    if traits_of(parts.solver, SolverTraits).scale_free:
        why = (
            "its steps do not depend on the size of the gradient, "
            "so no closed form or bound applies"
        )
        yield Remark(
            type(parts.solver).__name__, why, "use SGD() for a known objective"
        )
    if parts.personal is not None:
        why = "every client has its own model, so no closed form or bound applies"
        yield Remark(
            type(parts.personal).__name__,
            why,
            "leave out personal for a known objective",
        )


def factor(value: float) -> str:
    """A factor as text."""
    if value < 10:
        return f"{value:.2g} ×"
    return f"{value:.0f} ×"


def _uniform(context: ExplainContext) -> Iterator[Remark]:
    drawn = traits_of(context.parts.sampler, SamplerTraits)
    p = context.p
    m = drawn.per_round
    if (
        drawn.law != "uniform"
        or m is None
        or m >= len(p)
        or np.ptp(p) <= SAME * p.max()
    ):
        return
    uniform = Uniform(m).statistics(p)
    squares, limit = theory.uniform_beats_md(p, m)
    if squares > limit:
        ratio = theory.variance_ratio(uniform, MD(m).statistics(p))
        why = (
            f"variance {ratio:.2g} × MD's; Σ p² = {squares:.3g} > 1/(N−m+1) = {limit:.3g} "
            "[Fraboni 2023, Cor. 2.1]"
        )
        fix = f"use MD({m}) or ClusteredBySize({m})"
    elif uniform.sum_variance <= UNSTEADY**2:
        return
    else:
        clustered = ClusteredBySize(m).statistics(p).sigma
        deviation = np.sqrt(uniform.sum_variance)
        why = (
            "the weights of a round sum to 1 only on average (standard deviation "
            f"{deviation:.2g}), and Σ Var ω = {uniform.sigma:.3g}, against {clustered:.3g} with "
            "ClusteredBySize"
        )
        fix = f"use ClusteredBySize({m}), whose weights always sum to 1"
    yield Remark("uniform sampling with unequal importance", why, fix)


def _absent(context: ExplainContext) -> Iterator[Remark]:
    drawn = traits_of(context.parts.sampler, SamplerTraits)
    total = float(context.scheme.mean.sum())
    if not drawn.absent_keep or total >= 1 - SAME:
        return
    m = drawn.per_round
    why = (
        f"E[ω_i] = {total:.3g} p_i instead of p_i, so each round makes only {total:.3g} of the "
        "full step [Fraboni 2023, §3.1]"
    )
    fix = f"use Uniform({m}), whose weights compensate for absent clients, or MD({m})"
    yield Remark("absent clients keep the old model", why, fix)


def _loss_favouring(context: ExplainContext) -> Iterator[Remark]:
    drawn = traits_of(context.parts.sampler, SamplerTraits)
    statistics = context.scheme.statistics
    if not drawn.favours_losses or statistics is None:
        return
    mean = statistics.mean
    most = int(np.argmax(mean / np.maximum(context.p, 1e-300)))
    never = int((mean == 0).sum())
    unheard = ""
    if never:
        unheard = f"; it never selects {never} clients at these losses"
    why = (
        "it selects the clients with the largest losses, so the objective is a surrogate: "
        f"χ² ≈ {theory.chi_squared(context.p, mean):.3g}, client {most} has "
        f"{factor(mean[most] / context.p[most])} its importance{unheard} "
        f"(estimated {context.scheme.where})"
    )
    m = drawn.per_round
    fix = f"use MD({m}) or ClusteredBySize({m}) to minimise the requested objective"
    yield Remark(f"{name_of(context.parts.sampler)} is biased", why, fix)


def _times(context: ExplainContext) -> Iterator[Remark]:
    """Weights that do not compensate for how often each client arrives."""
    parts = context.parts
    scheme = context.scheme
    p = context.p
    made_up = traits_of(scheme.weighting, WeightingTraits).times is not None
    if waits_for_all(parts.clock) or by_losses(scheme.weighting) or made_up:
        return
    total = float(scheme.mean.sum())
    clock = type(parts.clock).__name__
    fix = "use TimeBased(times='estimated')"
    if selects_everyone(parts) and scheme.shares is not None:
        fix = "use TimeBased()"
    if not scheme.biased(p):
        if total < 1 - SLOW:
            why = f"the mean weights sum to {total:.2g} instead of 1, which slows training down"
            yield Remark(f"{clock} with {type(scheme.weighting).__name__}", why, fix)
        return
    kappa = theory.normalised(scheme.mean) / np.maximum(p, 1e-300)
    up = int(kappa.argmax())
    down = int(kappa.argmin())
    rule = traits_of(parts.clock, ClockTraits).balance_rule
    needs = ""
    if rule and scheme.balance is not None:
        needs = (
            f"the weights are not {rule}; "
            f"client {down} would need d = {scheme.balance[down]:.3g}; "
        )
    reason = "clients that are still working are skipped when drawn"
    if selects_everyone(parts):
        reason = "clients that answer more often count more"
    chi2 = theory.chi_squared(p, scheme.mean)
    why = (
        f"{needs}{reason}, so client {up} has {factor(kappa[up])} its importance and "
        f"client {down} {factor(kappa[down])}: χ² = {chi2:.3g} from the requested objective"
    )
    yield Remark(f"{clock} with {type(scheme.weighting).__name__} weights", why, fix)


def _losses(context: ExplainContext) -> Iterator[Remark]:
    weighting = context.scheme.weighting
    p = context.p
    q = theory.normalised(context.scheme.mean)
    if not by_losses(weighting):
        return
    kappa = q / np.maximum(p, 1e-300)
    if not context.scheme.biased(p):
        return
    off = theory.total_variation(p, q)
    inner = weighting
    if isinstance(weighting, WrapsWeighting):
        inner = weighting.inner
    favours = (
        traits_of(inner, WeightingTraits).favours
        or "report other losses count otherwise"
    )
    up = int(kappa.argmax())
    down = int(kappa.argmin())
    why = (
        f"clients that {favours}: κ = ω/p from {kappa[down]:.2g} (client {down}) to "
        f"{kappa[up]:.2g} (client {up}); {off:.0%} of the weight moves, "
        f"χ² ≈ {theory.chi_squared(p, q):.3g}, {context.scheme.where}; {_cap(inner)}"
    )
    yield Remark(
        f"{type(weighting).__name__} minimises a surrogate",
        why,
        _milder(context, inner),
    )


def _cap(weighting: Weighting) -> str:
    """How much of the weight a client can get by what it reports."""
    cap = getattr(weighting, "cap", None)
    if cap is None:
        return "a client that reports a false loss can get the whole weight (no cap=)"
    return f"no client gets more than {cap:.0%} of the weight (cap)"


def _milder(context: ExplainContext, weighting: Weighting) -> str:
    """A fix: the temperature that keeps half of every weight, or another weighting."""
    losses = context.table.get("before")
    tilt = traits_of(weighting, WeightingTraits).tilt
    if losses is not None and tilt is not None:
        if tilt.of == "loss":
            values = losses
            source = " [Mansour 2022, eq. 17]"
        else:
            values = losses - context.table["after"]
            source = ""
        enough = theory.least_temperature(float(np.ptp(values)), 0.5)
        return (
            f"{tilt.option} ≥ {enough:.3g} keeps every κ above 1/2{source}; "
            "Proportional() keeps the objective"
        )
    return (
        "use Proportional() to keep the objective, or Switch to it late in training "
        "[Mansour 2022, §3.2]"
    )


def _adjacency(context: ExplainContext) -> Iterator[Remark]:
    by_degree = traits_of(context.scheme.weighting, WeightingTraits).by_similarity
    if not by_degree or not context.scheme.biased(context.p):
        return
    chi2 = theory.chi_squared(context.p, context.scheme.mean)
    why = (
        "clients that resemble many others get more weight, "
        f"χ² = {chi2:.3g} from the requested importance [Buttaci 2024, §4.3]"
    )
    about = f"{type(context.scheme.weighting).__name__} minimises its own objective"
    yield Remark(about, why, "use Proportional() to keep the requested importance")


def _other(context: ExplainContext) -> Iterator[Remark]:
    """A bias without a more specific warning."""
    per_step = traits_of(context.scheme.weighting, WeightingTraits).per_step
    progress = context.progress if per_step else 1.0
    if not context.scheme.biased(context.p, progress):
        return
    sampler = type(context.parts.sampler).__name__
    weighting = type(context.scheme.weighting).__name__
    chi2 = theory.chi_squared(context.p, context.scheme.mean)
    why = (
        "the mean weight of a client is not its importance: "
        f"χ² = {chi2:.3g} from the requested objective"
    )
    fix = "use MD, or give the selected clients weights with mean p_i"
    yield Remark(f"{sampler} with {weighting}", why, fix)


def _steps(context: ExplainContext) -> Iterator[Remark]:
    a = context.progress
    if traits_of(context.scheme.weighting, WeightingTraits).per_step:
        return
    if np.ptp(a) <= SAME * a.max():
        return
    q = theory.normalised(context.scheme.mean)
    most = int(a.argmax())
    least = int(a.argmin())
    chi2 = theory.chi_squared(q, context.objective)
    why = (
        f"client {most} makes {a[most] / a[least]:.3g} × the local progress of client {least}, so "
        f"it has more influence: the objective has weights q_i a_i, χ² = {chi2:.3g} (objective "
        "inconsistency, [Fraboni 2023, Thm A.1])"
    )
    yield Remark(
        "unequal local steps",
        why,
        "use steps= instead of epochs=, PerStep(), or Scaffold",
    )
