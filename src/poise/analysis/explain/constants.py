"""Estimates of the constants in the bounds, each with its method and an interval."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from typing import Any

import numpy as np
import torch

from poise.analysis.explain.convex import minimise
from poise.analysis.explain.curvature import Constant, curvature_of
from poise.analysis.explain.sample_gradients import gradient_constants
from poise.core.federations import FederationLike, TaskLike
from poise.core.protocols import Oracle
from poise.core.traits import TaskTraits, traits_of
from poise.core.types import Floats
from poise.core.vectors import Vector
from poise.tasks.client_gradients import Clients, cost, double, some_clients
from poise.theory import Problem

BUDGET = 4e9
"""Multiplications to solve the convex problem; fixed, for reproducible results."""

MOST_PASSES = 600
LEAST_PASSES = 25
MOST_CLIENTS = 100  # of a problem that poise solves
# multiplications of a pass over the clients of a problem that poise does not solve
PASS = 4e8


@dataclass(frozen=True)
class Constants:
    """L, mu, sigma^2, G^2, Gamma, initial distance and gap, gradient dissimilarity."""

    smoothness: Constant
    convexity: Constant
    noise: Constant
    gradient: Constant
    heterogeneity: Constant
    distance: Constant
    gap: Constant
    dissimilarity: Constant
    importance: Floats
    optimum: Vector | None = None
    floors: Floats | None = None  # F_i*, the clients' lowest losses, (N,)

    def problem(self) -> Problem:
        """The values as input of the bounds."""
        return Problem(
            smoothness=self.smoothness.value,
            convexity=self.convexity.value,
            noise=self.noise.value,
            gradient=self.gradient.value,
            heterogeneity=self.heterogeneity.value,
            distance=self.distance.value,
            gap=self.gap.value,
            importance=self.importance,
        )

    def by_name(self) -> dict[str, Constant]:
        """Every constant by the name of its field."""
        return {
            name: value
            for name, value in vars(self).items()
            if isinstance(value, Constant)
        }

    def as_data(self) -> dict[str, Any]:
        """The constants as plain values."""
        return {
            name: {"value": c.value, "low": c.low, "high": c.high, "method": c.method}
            for name, c in self.by_name().items()
        }


def constants(
    federation: FederationLike,
    task: TaskLike,
    weight_decay: float = 0.0,
    batch_size: int | None = None,
    seed: int = 0,
) -> Constants:
    """Estimate the constants of a problem.

    - L: power iteration on Hessian-vector products at the initial model and at the
      optimum, if known; for logistic regression the bound ``|X_i|^2/(2 n_i) + decay``,
      which holds everywhere.
    - mu: the weight decay; for quadratics the smallest eigenvalue.
    - sigma^2 and G^2: from gradients of single samples at the same points, for the
      largest client.
    - Gamma, distance and gap: from the solution of the convex problem and of the
      clients' own problems, unless that takes more than a fixed number of operations.

    Args:
        federation: the clients and their data.
        task: model and loss.
        weight_decay: L2 penalty of the solver.
        batch_size: samples per step; None for full batches.
        seed: seed of the initial model and of random choices.

    >>> from poise.tasks import quadratics
    >>> fed = quadratics([[0.0], [4.0]], curvature=[1.0, 2.0])
    >>> known = constants(fed, fed.task)
    >>> [round(c.value, 6) for c in (known.smoothness, known.convexity, known.heterogeneity)]
    [2.0, 1.0, 2.666667]
    """
    oracle = double(task).bind(federation)
    start = oracle.initial(seed)
    importance = np.asarray(federation.importance, dtype=np.float64)
    kind = traits_of(task, TaskTraits).convex
    clients, passes = _opened(oracle, federation, kind, weight_decay, seed)
    points = [start]
    solved = None
    optimum = None
    if kind and passes:
        solved = _solved(clients, importance, start, kind, passes)
        optimum = solved.optimum
        points.append(optimum)
    curvature = curvature_of(clients, points, kind, weight_decay)
    noise, gradient, dissimilarity = gradient_constants(
        oracle,
        federation,
        points=points,
        decay=weight_decay,
        batch_size=batch_size,
        seed=seed,
    )
    heterogeneity, distance, gap = _gaps(
        clients,
        importance,
        start=start,
        solved=solved,
        convexity=curvature.convexity.value,
        kind=kind,
    )
    return Constants(
        smoothness=curvature.smoothness,
        convexity=curvature.convexity,
        noise=noise,
        gradient=gradient,
        heterogeneity=heterogeneity,
        distance=distance,
        gap=gap,
        dissimilarity=dissimilarity,
        importance=importance,
        optimum=optimum,
        floors=None if solved is None else solved.alone,
    )


def _opened(
    oracle: Oracle,
    federation: FederationLike,
    kind: str | None,
    decay: float,
    seed: int,
) -> tuple[Clients, int]:
    """All clients and the passes to solve the problem; else a few clients and 0."""
    few = not federation.on_demand and federation.clients <= MOST_CLIENTS
    if kind and few and (kind == "quadratic" or decay > 0):
        whole = Clients.open(
            oracle, some_clients(federation, MOST_CLIENTS, seed), decay, seed=seed
        )
        passes = int(BUDGET / (2 * cost(oracle) * whole.samples))
        if passes >= LEAST_PASSES:
            return whole, min(passes, MOST_PASSES)
    room = max(int(PASS / cost(oracle)), 8)
    per = int(np.clip(room / 50, 16, 200))
    numbers = some_clients(federation, int(np.clip(room / per, 2, 50)), seed)
    return Clients.open(oracle, numbers, decay, most=per, seed=seed), 0


@dataclass(frozen=True)
class Solved:
    """Optima of the federation and of each client, with the squared gradients there."""

    optimum: Vector
    best: float  # F at the optimum found
    left: float  # |grad F|^2 there
    alone: Floats  # F_i at the clients' own optima, (N,)
    left_alone: Floats  # (N,)


def _solved(
    clients: Clients, p: Floats, start: Vector, kind: str, passes: int
) -> Solved:
    """Solve the problem of the federation and those of the clients."""
    weights = torch.tensor(p)[:, None].to(start)
    step = (
        1 / curvature_of(clients, [start], kind, clients.decay).each.to(start)[:, None]
    )

    def together(rows: torch.Tensor) -> torch.Tensor:
        return (weights * clients.gradients(rows.repeat(len(p), 1))).sum(
            dim=0, keepdim=True
        )

    optimum = minimise(
        together, start[None], step.min(dim=0, keepdim=True).values, passes
    )
    own = minimise(clients.gradients, clients.same(start), step, passes)
    return Solved(
        optimum[0],
        float(p @ clients.losses(clients.same(optimum[0]))),
        float(together(optimum).square().sum()),
        clients.losses(own),
        clients.gradients(own).square().sum(dim=1).numpy(),
    )


def _gaps(
    clients: Clients,
    p: Floats,
    start: Vector,
    solved: Solved | None,
    convexity: float,
    kind: str | None,
) -> tuple[Constant, Constant, Constant]:
    """Gamma, |w^0 - w*|^2 and F(w^0) - F*."""
    shown = p[clients.numbers] / p[clients.numbers].sum()
    at_start = float(shown @ clients.losses(clients.same(start)))
    if solved is None:
        why = "the task does not declare convexity"
        if kind is not None and convexity > 0:
            why = "the problem is too large to solve"
        elif kind is not None:
            why = "without weight decay, an optimum may not exist"
        unknown = Constant(nan, nan, nan, why)
        data = f"{clients.samples} samples of {len(clients.numbers)} clients"
        gap = Constant(
            at_start,
            0.0,
            at_start,
            f"loss of the initial model, {data}; losses are at least 0",
        )
        return (
            Constant(
                nan, 0.0, at_start, f"{why}; at most the loss of the initial model"
            ),
            unknown,
            gap,
        )
    slack = solved.left / (2 * convexity)
    slack_alone = float(p @ solved.left_alone) / (2 * convexity)
    gamma = solved.best - float(p @ solved.alone)
    how = "convex problem solved; interval from the remaining gradient"
    away = float((start - solved.optimum).square().sum())
    off = float(np.sqrt(solved.left)) / convexity
    return (
        Constant(
            max(gamma, 0.0), max(gamma - slack, 0.0), max(gamma + slack_alone, 0.0), how
        ),
        Constant(
            away, max(np.sqrt(away) - off, 0.0) ** 2, (np.sqrt(away) + off) ** 2, how
        ),
        Constant(
            at_start - solved.best,
            at_start - solved.best,
            at_start - solved.best + slack,
            how,
        ),
    )
