"""The fixed point of loss-based weights: its losses give the weights that led to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from poise import theory
from poise.analysis.explain.constants import Constants
from poise.analysis.explain.convex import minimise
from poise.analysis.explain.reported_losses import ReportedLosses, reported_losses
from poise.analysis.explain.scheme import (
    Scheme,
    by_losses,
    scheme_of,
    selects_everyone,
    waits_for_all,
)
from poise.core.protocols import Oracle, Solver, Weighting
from poise.core.round_updates import RoundUpdates
from poise.core.traits import SolverTraits, WeightingTraits, traits_of
from poise.core.types import Floats, Setting
from poise.core.weights import weigh
from poise.tasks.client_gradients import Clients, cost, double
from poise.training import Composition

MOST = 60  # steps of Anderson's method
CLOSE = 1e-7  # tolerance of the logarithms of the weights
LEAST = 1e-12  # smallest weight
STABILITY_STEPS = 12  # iterations of the stability test
PASSES = 60
BUDGET = 1e9  # multiplications in all

FIXED_POINT = "at the fixed point, where the weights no longer change"


def fixed_point(
    composition: Composition,
    oracle: Oracle,
    setting: Setting,
    scheme: Scheme,
    progress: Floats,
    known: Constants | None,
) -> tuple[Scheme, dict[str, Floats]] | None:
    """The weights at the fixed point, and the losses there.

    Applies only to full participation, loss-based weights and a solved convex problem.
    Returns None if there is no stable fixed point, or if it takes too long to find.
    """
    parts = composition.parts
    fed = composition.federation
    everyone = selects_everyone(parts) and waits_for_all(parts.clock)
    weights = traits_of(scheme.weighting, WeightingTraits)
    settles = everyone and by_losses(scheme.weighting) and weights.continuous
    if known is None or known.optimum is None or not settles:
        return None
    clients = Clients.open(
        double(composition.task).bind(fed),
        np.arange(fed.clients),
        known_decay(parts.solver),
    )
    if cost(oracle) * clients.samples * PASSES * MOST > BUDGET:
        return None
    like = oracle.initial(composition.seed)
    smoothness = known.smoothness.value
    optima: list[torch.Tensor] = [known.optimum]
    losses: list[ReportedLosses] = []

    def log_change(logs: Floats) -> Floats:
        """The change of the weights in one iteration, in logarithms."""
        q = theory.normalised(np.exp(logs - logs.max()))
        objective = theory.with_local_work(q, progress)
        optima.append(surrogate_optimum(clients, objective, optima[-1], smoothness))
        losses.append(reported_losses(composition, oracle, optima[-1].to(like)))
        after = theory.normalised(_weights(scheme.weighting, setting, losses[-1]))
        return np.asarray(
            np.log(np.maximum(after, LEAST)) - np.log(np.maximum(q, LEAST))
        )

    # where the run starts
    first = np.log(np.maximum(theory.normalised(scheme.mean), LEAST))
    logs = _root(log_change, first)
    if logs is None:
        return None
    if not weights.larger_losses_count_more and _unstable(log_change, logs):
        return None  # weights that favour small losses may have several fixed points
    log_change(logs)
    mean = theory.normalised(np.exp(logs - logs.max()))
    table = {**losses[-1].table(), "lowest": np.full(setting.clients, np.inf)}
    return replace(
        scheme,
        mean=mean,
        half_width=None,
        method=FIXED_POINT,
        where="at the fixed point",
    ), table


def _root(change: Callable[[Floats], Floats], first: Floats) -> Floats | None:
    """The zero of a function by Anderson's method; None if it does not converge."""
    from scipy.optimize import NoConvergence, anderson

    try:
        return np.asarray(anderson(change, first, M=5, f_tol=CLOSE, maxiter=MOST))
    except (NoConvergence, ValueError, FloatingPointError):
        return None


def weights_at_optimum(
    composition: Composition, oracle: Oracle, setting: Setting, known: Constants | None
) -> tuple[Scheme, dict[str, Floats]] | None:
    """The weights at the optimum of the requested objective; None if it is unknown."""
    if known is None or known.optimum is None:
        return None
    theta = known.optimum.to(oracle.initial(composition.seed))
    losses = reported_losses(composition, oracle, theta)
    table = {**losses.table(), "lowest": np.full(setting.clients, np.inf)}
    scheme = scheme_of(composition.parts, setting, table, composition.options)
    return replace(scheme, where="at the optimum of the requested objective"), table


def _unstable(log_change: Callable[[Floats], Floats], logs: Floats) -> bool:
    """Whether the fixed point is unstable: a small change of the weights grows."""
    perturbation = 1e-3 * np.random.default_rng(0).normal(size=len(logs))
    moved = logs + perturbation
    for _ in range(STABILITY_STEPS):
        moved = moved + log_change(moved) / 2
    return bool(np.ptp(moved - logs) > np.ptp(perturbation))


def known_decay(solver: Solver) -> float:
    """The L2 penalty of a solver."""
    return traits_of(solver, SolverTraits).weight_decay


def _weights(weighting: Weighting, setting: Setting, losses: ReportedLosses) -> Floats:
    """The weights of all clients at these losses."""
    n = setting.clients
    p = np.asarray(setting.importance, dtype=np.float64)
    updates = RoundUpdates.of_columns(
        p,
        importance=p,
        samples=np.asarray(setting.sizes),
        norms=losses.norms,
        loss_before=losses.before,
        loss_after=losses.after,
        lowest_loss=np.full(n, np.inf),
        participations=np.ones(n),
        identical_weights=p,
    )
    return weigh(weighting, updates)


def surrogate_optimum(
    clients: Clients,
    objective: Floats,
    start: torch.Tensor,
    smoothness: float,
    passes: int = PASSES,
) -> torch.Tensor:
    """The minimiser of sum_i q_i F_i, found from a nearby model."""
    weights = torch.tensor(objective)[:, None].to(start)

    def together(rows: torch.Tensor) -> torch.Tensor:
        return (weights * clients.gradients(rows.repeat(len(weights), 1))).sum(
            dim=0, keepdim=True
        )

    step = torch.full((1, 1), 1 / smoothness, dtype=start.dtype)
    return minimise(together, start[None], step, passes)[0]
