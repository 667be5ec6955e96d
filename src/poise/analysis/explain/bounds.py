"""The bounds that apply to a composition, and the papers' conditions that it meets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import isclose, isfinite, isnan

import numpy as np

from poise import theory
from poise.analysis.explain.constants import Constants
from poise.analysis.explain.late_bounds import late_bounds
from poise.analysis.explain.remarks import ExplainContext, in_theory
from poise.analysis.explain.scheme import (
    Scheme,
    by_losses,
    selects_everyone,
    waits_for_all,
)
from poise.core.protocols import Solver
from poise.core.traits import (
    SamplerTraits,
    ServerTraits,
    SolverTraits,
    WeightingTraits,
    traits_of,
)
from poise.core.types import Floats
from poise.theory import Assumption, Terms

RANGE = "κ_i = α_i/p_i"
"""How the assumption on the range of the weights begins."""


def bounds(
    context: ExplainContext, constants: Constants, rounds: float
) -> Mapping[str, Terms]:
    """The bounds that apply to this composition by name, with the known constants."""
    steps = _steps(context)
    problem = constants.problem()
    if steps is None or rounds < 1 or not in_theory(context.parts):
        return {}
    applicable: list[Terms] = []
    together = selects_everyone(context.parts) and waits_for_all(context.parts.clock)
    if together and isfinite(problem.smoothness) and not uncovered(context):
        if isfinite(problem.convexity) and problem.convexity > 0:
            applicable += _convex(context, problem, steps, int(rounds))
        else:
            applicable += _smooth(context, problem, steps, int(rounds))
    if waits_for_all(context.parts.clock) and not by_losses(context.scheme.weighting):
        applicable += _sampled(context, constants, steps, int(rounds))
    if not context.parts.clock.waits:
        applicable += late_bounds(context, constants, steps, rounds, _rates(context))
    kept = Assumption(
        "the mean weights are the importance",
        not context.scheme.biased(context.p) and not _staged(context),
    )
    by_name = {}
    for terms in applicable:
        if isnan(terms.total):
            continue
        assumptions = terms.assumptions
        if "weights" not in terms.name:
            assumptions = (*assumptions, kept)
        by_name[terms.name] = replace(terms, assumptions=assumptions)
    return by_name


def uncovered(context: ExplainContext) -> tuple[str, ...]:
    """The properties of the local steps and the server that no bound here covers.

    The proofs of [Mansour 2022], [Exp-α 2023], [Buttaci 2024] and [Mansour 2023] assume
    plain gradient steps, with FedProx's or the perturbed gradient's term at most, and a
    server that takes the weighted mean of the models.
    """
    solver = traits_of(context.parts.solver, SolverTraits)
    server = traits_of(context.parts.server, ServerTraits)
    reasons = []
    if by_losses(context.scheme.weighting):
        if solver.pull:
            reasons.append("weights from losses together with FedProx's pull")
        if solver.own_share is not None:
            reasons.append("weights from losses together with the perturbed gradient")
    if not solver.gradient_steps and solver.own_share is None:
        reasons.append(f"{type(context.parts.solver).__name__} adds its own terms")
    if solver.momentum:
        reasons.append(f"local momentum {solver.momentum:g}")
    if solver.clips:
        reasons.append("clipped gradients")
    if not server.adds:
        reasons.append(f"the server {type(context.parts.server).__name__}")
    elif server.rate != 1:
        reasons.append(f"the server's rate {server.rate:g}")
    if server.noise:
        reasons.append("noise on the direction")
    return tuple(reasons)


def _convex(
    context: ExplainContext, problem: theory.Problem, steps: int, rounds: int
) -> list[Terms]:
    """Bounds for full participation and strongly convex losses.

    Sources: [Mansour 2022], [Exp-α 2023], [Buttaci 2024], [Mansour 2023].
    """
    solver = traits_of(context.parts.solver, SolverTraits)
    rate = constant_rate(context.parts.solver)
    plain = solver.own_share is None and solver.pull == 0
    constant = context.scheme.exact and context.scheme.biased(context.p)
    if by_losses(context.scheme.weighting) or (constant and plain):
        return _weighted(context, problem, steps, rounds)
    own: list[Terms] = []
    if solver.own_share is not None:
        beta = solver.own_share
        theorems = [
            theory.perturbed_bound(problem, beta, steps, rounds, "fixed"),
            theory.perturbed_bound(problem, beta, steps, rounds, "falling"),
        ]
        fixed = 1 / (2 * problem.smoothness * steps)
        name = "loss gap of the perturbed gradient, own rate"
        if rate is not None:
            round_ = theory.perturbed_round(problem, beta, steps, rate)
            own.append(round_.repeated(rounds).loss_gap(problem, name))
    else:
        theorems = [
            theory.fedprox_bound(problem, solver.pull, steps, rounds, "fixed"),
            theory.fedprox_bound(problem, solver.pull, steps, rounds, "falling"),
        ]
        fixed = 1 / (2 * (solver.pull + problem.smoothness) * steps)
        name = "loss gap of FedProx, own rate"
        if rate is not None:
            round_ = theory.fedprox_round(problem, solver.pull, steps, rate)
            own.append(round_.repeated(rounds).loss_gap(problem, name))
    return [
        at_rate(theorems[0], rate, fixed),
        at_rate(theorems[1], rate, None),
        *own,
    ]


def _weighted(
    context: ExplainContext, problem: theory.Problem, steps: int, rounds: int
) -> list[Terms]:
    """Bounds for weights other than the importance, from the range of kappa.

    ``pi <= rho_ and rho~ <= Pi`` [Mansour 2022, eq. 13]; ``pi Gamma <= Omega`` and
    ``Gamma' <= Pi Gamma``, since F is nowhere below F*, bound the two constants of
    [Exp-α 2023, Thm 1].
    """
    weights = theory.normalised(context.scheme.mean)
    found = weighted_bounds(
        problem,
        steps=steps,
        iterations=steps * rounds,
        rate=constant_rate(context.parts.solver),
        kappa=theory.weight_range(weights, context.p),
        largest=weights,
    )
    constant = None
    where = f", as {context.scheme.where}"
    one_stage = context.scheme.exact and not _staged(context)
    if one_stage and not by_losses(context.scheme.weighting):
        constant = True
        where = ""
    pi, top = theory.weight_range(weights, context.p)
    kept = Assumption(
        f"{RANGE} stays from π = {pi:.3g} to Π = {top:.3g} in all rounds{where}",
        constant,
    )
    return [replace(t, assumptions=(*t.assumptions, kept)) for t in found]


def _staged(context: ExplainContext) -> bool:
    """Whether the weighting changes during training, as `Switch` and `Anneal` do."""
    return context.parts.weighting is not context.scheme.weighting


def weighted_bounds(
    problem: theory.Problem,
    *,
    steps: int,
    iterations: int,
    rate: float | None,
    kappa: tuple[float, float],
    largest: Floats,
) -> list[Terms]:
    """The bounds for weights with ``kappa_i`` in this range.

    At the rates of both papers, and at the run's own if that is constant.
    """
    pi, top = kappa
    spread = problem.heterogeneity
    omega = pi * spread
    gamma = top * spread
    found: list[Terms] = []
    if pi > 0:
        skewed = theory.skew_bound(problem, steps, iterations, pi, top)
        found.append(at_rate(skewed, rate, None))
    varying = theory.varying_bound(problem, steps, iterations, omega, gamma, largest)
    found.append(at_rate(varying, rate, None))
    if rate is not None:
        one = theory.skew_step(problem, steps, rate, pi, top)
        name = "loss gap with skewed weights, own rate"
        found.append(one.repeated(iterations).loss_gap(problem, name))
        other = theory.varying_step(problem, steps, rate, omega, gamma, largest)
        name = "loss gap with weights that vary over time, own rate"
        found.append(other.repeated(iterations).loss_gap(problem, name))
    return found


def constant_rate(solver: Solver) -> float | None:
    """The learning rate of a solver, if it is the same in all steps; otherwise None."""
    if traits_of(solver, SolverTraits).constant_rate:
        return solver.rate(0)
    return None


def at_rate(terms: Terms, rate: float | None, fixed: float | None) -> Terms:
    """Decide the assumption on the learning rate of a theorem.

    Args:
        terms: the bound of the theorem.
        rate: the rate of the run; None if it is not constant.
        fixed: the rate of the theorem; None if it falls.
    """
    holds: bool | None = None
    if rate is not None:
        holds = fixed is not None and isclose(rate, fixed, rel_tol=1e-6)
    elif fixed is not None:
        holds = False
    decided = []
    for assumption in terms.assumptions:
        if assumption.text.startswith("learning rate"):
            assumption = replace(assumption, holds=holds)
        decided.append(assumption)
    return replace(terms, assumptions=tuple(decided))


def _smooth(
    context: ExplainContext, problem: theory.Problem, steps: int, rounds: int
) -> list[Terms]:
    """Bounds for full participation and non-convex losses [Buttaci 2024]."""
    solver = traits_of(context.parts.solver, SolverTraits)
    if solver.own_share is not None:
        return [theory.perturbed_stationary(problem, solver.own_share, steps, rounds)]
    if by_losses(context.scheme.weighting):
        return []
    return [theory.fedprox_stationary(problem, solver.pull, steps, rounds)]


def _sampled(
    context: ExplainContext, constants: Constants, steps: int, rounds: int
) -> list[Terms]:
    """The bound for sampled clients [Fraboni 2023, ch. 2]."""
    weights = context.scheme.statistics
    problem = constants.problem()
    rate, server = _rates(context)
    weighting = traits_of(context.scheme.weighting, WeightingTraits)
    plain = weighting.proportional and not weighting.reads_updates
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


def _steps(context: ExplainContext) -> int | None:
    """The number of local steps, if it is the same for all clients; otherwise None."""
    steps = context.parts.solver.steps_for(np.asarray(context.setting.sizes))
    if (steps == steps[0]).all():
        return int(steps[0])
    return None


def _rates(context: ExplainContext) -> tuple[float | None, float]:
    """The local rate (None except for plain SGD and adding), and the server's rate."""
    solver = context.parts.solver
    server_rate = traits_of(context.parts.server, ServerTraits).rate
    if server_rate is None:
        server_rate = 1.0
    traits = traits_of(solver, SolverTraits)
    plain = traits.plain_gradient and traits.pull == 0 and traits.constant_rate
    if not _adds(context) or not plain:
        return None, server_rate
    return solver.rate(0), server_rate


def _adds(context: ExplainContext) -> bool:
    """Whether the server only adds the direction."""
    server = traits_of(context.parts.server, ServerTraits)
    return server.adds and server.noise == 0


def sum_tolerance(scheme: Scheme) -> float:
    """Tolerance of the sum of the mean weights around 1."""
    if scheme.half_width is None:
        return 1e-9
    return 1e-9 + float(np.linalg.norm(scheme.half_width))


def conditions(
    context: ExplainContext, constants: Constants | None
) -> tuple[Assumption, ...]:
    """The conditions of the papers, and whether this composition meets them."""
    scheme = context.scheme
    kept = not scheme.biased(context.p, context.progress)
    off = abs(float(scheme.mean.sum()) - 1)
    whole_mean = not scheme.biased(context.p) and off <= sum_tolerance(scheme)
    one_covariance: bool | None = None
    if scheme.statistics is not None:
        one_covariance = scheme.statistics.alpha is not None
    strongly_convex: bool | None = None
    if constants is not None and isfinite(constants.convexity.value):
        strongly_convex = bool(constants.convexity.value > 0)
    everyone = selects_everyone(context.parts) and waits_for_all(context.parts.clock)
    whole = context.parts.clock.waits and float(np.ptp(scheme.schedule.sums)) <= 1e-9
    texts: dict[str, bool | None] = {
        "E[ω_i] = p_i [Fraboni 2023, Def. 2.1]": whole_mean,
        "q̃ = p: training minimises the requested objective [Fraboni 2023, Thm 4.3]": kept,
        "Cov ω_i ω_j = −α p_i p_j [Fraboni 2023, Ass. 2.1]": one_covariance,
        (
            "the weights of every aggregation sum to one [Mansour 2022], [Exp-α 2023], [Buttaci "
            "2024], [Mansour 2023]"
        ): bool(whole),
        (
            "every client takes part in every round [Mansour 2022], [Exp-α 2023], "
            "[Buttaci 2024], [Mansour 2023]"
        ): everyone,
        "all clients make the same number of local steps (all papers)": _steps(context)
        is not None,
        (
            "every client's loss is strongly convex [Mansour 2022], [Exp-α 2023], [Buttaci 2024, "
            "§4.2.2], [Mansour 2023]"
        ): strongly_convex,
        "the server only adds the direction [Fraboni 2023]": _adds(context),
    }
    if not in_theory(context.parts):
        texts[
            "the direction is a weighted sum of the clients' updates (all papers)"
        ] = False
    if traits_of(context.parts.sampler, SamplerTraits).remembers_draws:
        texts["the rounds draw independently of each other [Fraboni 2023, ch. 2]"] = (
            False
        )
    return tuple(Assumption(text, holds) for text, holds in texts.items())
