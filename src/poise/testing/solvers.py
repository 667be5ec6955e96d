"""The contract of local solvers."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from torch import nn

from poise.core.protocols import Oracle
from poise.core.rng import keys
from poise.core.types import Ints, Updates
from poise.core.vectors import Vector
from poise.core.work import local_work
from poise.tasks import Task, quadratics
from poise.testing.clauses import SIZES, fits, holds, setting_of
from poise.testing.federations import SampleFederation


def check_solver(solver: Any, *, fixed_point: bool = True, rounds: int = 400, seed: int = 0) -> None:
    """The contract of solvers.

    Clauses: at least one step per client, which depends on its own size only; the start is not modified; replay is
    identical; row-wise (a client's result does not depend on who else is in the stack); one quadratic client
    that works again and again ends at the optimum of its penalised loss, ``c o / (c + weight_decay)``, and from there a
    step without momentum leads nowhere.

    Args:
        solver: the solver.
        fixed_point: whether the last two clauses apply.
        rounds: pieces of work until the optimum.
        seed: of the batches.
    """
    fits(solver, setting_of())
    holds(np.isfinite(solver.rate(0)) and solver.rate(0) > 0, solver, "has a learning rate for every version")
    _steps(solver)
    federation = SampleFederation.random(SIZES, shape=(3,), classes=0, seed=seed)
    oracle = Task(module=nn.Sequential(nn.Linear(3, 1)), loss="mse", dtype="float64").bind(federation)
    _row_wise(solver, oracle, federation.sizes, seed)
    if fixed_point:
        _fixed_point(solver, rounds, seed)


def work(oracle: Oracle, solver: Any, start: Vector, clients: Ints, sizes: Ints, version: int, seed: int) -> Updates:
    """Local work of some clients from one model, in the order that was asked for."""
    order = np.argsort(-solver.steps_for(sizes[clients]), kind="stable")
    who = clients[order]
    streams = keys(seed, "work", version, who, 0)
    done = local_work(oracle, solver, start.expand(len(who), -1), who, version, streams)
    return done.rows(np.argsort(order))


def _steps(solver: Any) -> None:
    sizes = np.array(SIZES, dtype=np.int64)
    steps = solver.steps_for(sizes)
    holds(steps.shape == sizes.shape and np.issubdtype(steps.dtype, np.integer), solver, "whole numbers of steps")
    holds((steps >= 1).all(), solver, "at least one step per client", steps)
    alone = [int(solver.steps_for(sizes[k : k + 1])[0]) for k in range(len(sizes))]
    holds(steps.tolist() == alone, solver, "steps depend on a client's own size only", (steps, alone))


def _row_wise(solver: Any, oracle: Oracle, sizes: Ints, seed: int) -> None:
    clients, start = np.arange(len(sizes)), oracle.initial(seed)
    held = start.clone()
    together = work(oracle, solver, start, clients, sizes, 2, seed)
    holds(torch.equal(start, held), solver, "the start is not modified")
    holds(bool(torch.isfinite(together.deltas).all()), solver, "changes are finite")
    holds(bool((together.norms > 0).all()), solver, "every client moves")
    again = work(oracle, solver, start, clients, sizes, 2, seed)
    holds(torch.equal(together.deltas, again.deltas), solver, "replay is identical")
    for group in (clients[:1], clients[3:5], clients[::-1], clients[::3]):
        some = work(oracle, solver, start, group.copy(), sizes, 2, seed)
        gap = float((some.deltas - together.deltas[torch.from_numpy(group.copy())]).abs().max())
        holds(gap < 1e-12, solver, "row-wise: a client's result does not depend on the others", gap)


def _fixed_point(solver: Any, rounds: int, seed: int) -> None:
    exact = dataclasses.replace(solver, batch_size=None) if solver.batch_size is not None else solver
    curvature, target = 0.8, np.array([1.0, -2.0])
    problem = quadratics([target], curvature)
    oracle = problem.task.bind(problem)
    theta, who = oracle.initial(seed), np.array([0])
    for _ in range(rounds):
        theta = theta + work(oracle, exact, theta, who, problem.sizes, 0, seed).deltas[0]
    optimum = torch.from_numpy(curvature * target / (curvature + getattr(solver, "weight_decay", 0.0)))
    gap = float((theta - optimum).abs().max())
    holds(gap < 1e-6, solver, "one quadratic client ends at its optimum", f"{theta.tolist()} for {optimum.tolist()}")
    still = work(oracle, exact, optimum, who, problem.sizes, 0, seed)
    holds(still.norms[0] < 1e-12, solver, "its optimum is a fixed point", still.norms[0])
