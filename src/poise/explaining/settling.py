"""Where loss-based weights settle: the model whose losses give the weights that lead to this model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy.optimize import NoConvergence, anderson

from poise import theory
from poise.composition import Composition
from poise.core.types import Floats, Setting
from poise.explaining.client_gradients import Clients, cost, double
from poise.explaining.constants import Constants
from poise.explaining.convex import minimise
from poise.explaining.probe import Probe, probe
from poise.explaining.scheme import Scheme, by_losses, name_of, scheme_of, waits_for_all

MOST = 60  # steps of Anderson's method
CLOSE = 1e-7  # largest difference of the logarithms of the weights
LEAST = 1e-12  # weights below it count as this
NUDGES = 12  # steps in which a small change must not grow
PASSES = 60
ROOM = 1e9  # multiplications in all

SETTLED = "solved for the model at which the weights no longer change"


def settle(
    composition: Composition, oracle: Any, setting: Setting, scheme: Scheme, progress: Floats, known: Constants | None
) -> tuple[Scheme, dict[str, Floats]] | None:
    """The weights at the fixed point, and the losses there.

    Only where everyone takes part in every round, so that losses decide the weights, and where the convex problem was
    solved; None where there is no rest, or none that a run would stay at, or where it takes too long.
    """
    parts, fed = composition.parts, composition.federation
    everyone = bool(getattr(parts.sampler, "everyone", False)) and waits_for_all(parts.clock)
    jumps = name_of(scheme.weighting) in ("max", "min")
    if known is None or known.optimum is None or not everyone or not by_losses(scheme.weighting) or jumps:
        return None
    clients = Clients.open(double(composition.task).bind(fed), np.arange(fed.clients), known_decay(parts.solver))
    if cost(oracle) * clients.samples * PASSES * MOST > ROOM:
        return None
    like, bent = oracle.initial(composition.seed), known.smoothness.value
    reached: list[torch.Tensor] = [known.optimum]
    seen: list[Probe] = []

    def apart(logs: Floats) -> Floats:
        """How the weights that these weights lead to differ from them, in logarithms."""
        q = theory.normalised(np.exp(logs - logs.max()))
        reached.append(surrogate_optimum(clients, theory.with_local_work(q, progress), reached[-1], bent))
        seen.append(probe(oracle, fed, parts.solver, reached[-1].to(like), composition.seed, parts.reports))
        after = theory.normalised(_weights(scheme.weighting, setting, seen[-1]))
        return np.asarray(np.log(np.maximum(after, LEAST)) - np.log(np.maximum(q, LEAST)))

    first = np.log(np.maximum(theory.normalised(scheme.mean), LEAST))  # the same basin as the run's
    try:
        logs = anderson(apart, first, M=5, f_tol=CLOSE, maxiter=MOST)
    except (NoConvergence, ValueError, FloatingPointError):
        return None
    if name_of(scheme.weighting) != "soft-max" and _runs_away(apart, logs):
        return None  # small losses that make their client count more have several ends
    apart(logs)
    mean = theory.normalised(np.exp(logs - logs.max()))
    table = {**seen[-1].table(), "lowest": np.full(setting.clients, np.inf)}
    return replace(scheme, mean=mean, half_width=None, method=SETTLED, where="where the weights settle"), table


def at_the_optimum(
    composition: Composition, oracle: Any, setting: Setting, known: Constants | None
) -> tuple[Scheme, dict[str, Floats]] | None:
    """The weights with the losses at the optimum of what was asked for; None where that is not known."""
    if known is None or known.optimum is None:
        return None
    parts, like = composition.parts, oracle.initial(composition.seed)
    fed, theta = composition.federation, known.optimum.to(like)
    looked = probe(oracle, fed, parts.solver, theta, composition.seed, parts.reports)
    table = {**looked.table(), "lowest": np.full(setting.clients, np.inf)}
    scheme = scheme_of(parts, setting, table, composition.seed, composition.rounds, composition.time)
    return replace(scheme, where="with the losses at the optimum of what was asked for"), table


def _runs_away(apart: Callable[[Floats], Floats], logs: Floats) -> bool:
    """Whether a small change of the weights grows when the weights follow it: then no run stays there."""
    nudge = 1e-3 * np.random.default_rng(0).normal(size=len(logs))
    moved = logs + nudge
    for _ in range(NUDGES):
        moved = moved + apart(moved) / 2
    off = moved - logs
    return bool(np.ptp(off) > np.ptp(nudge))


def known_decay(solver: Any) -> float:
    """The L2 penalty of a solver."""
    return float(getattr(solver, "weight_decay", 0.0))


def _weights(weighting: Any, setting: Setting, looked: Probe) -> Floats:
    """The coefficients of everyone at these losses."""
    n, p = setting.clients, np.asarray(setting.importance, dtype=np.float64)
    return np.asarray(weighting.coefficients(
        p, loss_before=looked.before, loss_after=looked.after, sizes=np.asarray(setting.sizes), clients=np.arange(n),
        versions=np.zeros(n, dtype=np.int64), round=0, importance=p, lowest_loss=np.full(n, np.inf), reached={},
        seen=np.ones(n), identical=p,
    ), dtype=np.float64)  # fmt: skip


def surrogate_optimum(
    clients: Clients, objective: Floats, start: torch.Tensor, smoothness: float, passes: int = PASSES
) -> torch.Tensor:
    """The minimiser of sum_i q_i F_i, from a model nearby."""
    weights = torch.tensor(objective)[:, None].to(start)

    def together(rows: torch.Tensor) -> torch.Tensor:
        return (weights * clients.gradients(rows.repeat(len(weights), 1))).sum(dim=0, keepdim=True)

    step = torch.full((1, 1), 1 / smoothness, dtype=start.dtype)
    return minimise(together, start[None], step, passes)[0]
