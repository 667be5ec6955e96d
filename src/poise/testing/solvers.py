"""The contract of local solvers."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from poise.core.algorithm_state import memory_of
from poise.core.arrivals import UPDATE
from poise.core.capabilities import batches_per_step
from poise.core.parts import with_options
from poise.core.protocols import Oracle, Solver
from poise.core.rng import keys
from poise.core.traits import SolverTraits, traits_of
from poise.core.types import Ints
from poise.core.vectors import Stack, Vector
from poise.engine.local_work import LocalWork, WorkGroup
from poise.tasks import Task, quadratics
from poise.testing.clauses import SIZES, fits, holds, setting_of
from poise.testing.federations import SampleFederation

UNEQUAL = tuple(7 * size for size in SIZES)
"""Clients of 14 to 91 samples, which make different numbers of steps."""


def check_solver(
    solver: Solver, *, fixed_point: bool = True, rounds: int = 400, seed: int = 0
) -> None:
    """Check the contract of solvers.

    Clauses: every client makes at least one step, and the number depends on its own
    size only; the start is not modified; replay is identical; a client's result does
    not depend on the other rows of the stack. A quadratic client that works repeatedly
    ends at the optimum of its penalised loss, ``c o / (c + weight_decay)``, which is a
    fixed point without momentum. Declared traits are true (a plain gradient step is
    ``w - rate (g + weight_decay w + pull (w - theta))``, a constant rate is constant, a
    solver that ignores its start ends at the client's own sums, a solver that sends
    only updates keeps no state, and a solver that is ``scale_free`` moves as far on
    gradients of any size, in the first step by ``first_step`` times the rate). A
    ``scale_free`` solver comes as near to the optimum as one piece of work moves.

    Args:
        solver: the solver.
        fixed_point: whether the last two clauses apply.
        rounds: number of pieces of work to reach the optimum.
        seed: of the batches.
    """
    fits(solver, setting_of())
    holds(
        np.isfinite(solver.rate(0)) and solver.rate(0) > 0,
        solver,
        "has a learning rate for every version",
    )
    _steps(solver)
    federation = SampleFederation.random(UNEQUAL, shape=(3,), classes=0, seed=seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # the result must not depend on earlier random numbers
        module = nn.Sequential(nn.Linear(3, 1))
    oracle = Task(module=module, loss="mse", dtype="float64").bind(federation)
    _row_wise(solver, oracle, federation.sizes, seed)
    _traits_hold(solver, seed)
    decoupled = traits_of(solver, SolverTraits).decoupled_decay > 0
    if fixed_point and not decoupled:  # the fixed point is that of no penalised loss
        _fixed_point(solver, rounds, seed)


def work(
    local: LocalWork, start: Vector, clients: Ints, sizes: Ints, version: int, seed: int
) -> Stack:
    """Return the updates of these clients from one model, in the given order."""
    order = np.argsort(-local.solver.steps_for(sizes[clients]), kind="stable")
    ordered = clients[order]
    streams = keys(seed, "work", version, ordered, 0)
    done = local.run(
        start.expand(len(ordered), -1), WorkGroup(ordered, version, streams)
    )
    return done.rows(np.argsort(order)).payload[UPDATE]


def _steps(solver: Solver) -> None:
    sizes = np.array(UNEQUAL, dtype=np.int64)
    steps = solver.steps_for(sizes)
    holds(
        steps.shape == sizes.shape and np.issubdtype(steps.dtype, np.integer),
        solver,
        "whole numbers of steps",
    )
    holds((steps >= 1).all(), solver, "at least one step per client", steps)
    alone = [int(solver.steps_for(sizes[k : k + 1])[0]) for k in range(len(sizes))]
    holds(
        steps.tolist() == alone,
        solver,
        "steps depend on a client's own size only",
        (steps, alone),
    )


def _row_wise(solver: Solver, oracle: Oracle, sizes: Ints, seed: int) -> None:
    clients = np.arange(len(sizes))
    start = oracle.initial(seed)
    local = LocalWork.plain(oracle, solver)
    held = start.clone()
    together = work(local, start, clients=clients, sizes=sizes, version=2, seed=seed)
    holds(torch.equal(start, held), solver, "the start is not modified")
    holds(bool(torch.isfinite(together).all()), solver, "changes are finite")
    holds(bool((together.abs().amax(dim=1) > 0).all()), solver, "every client moves")
    again = work(local, start, clients=clients, sizes=sizes, version=2, seed=seed)
    holds(torch.equal(together, again), solver, "replay is identical")
    for group in (clients[:1], clients[3:5], clients[::-1], clients[::3]):
        alone = work(
            local, start, clients=group.copy(), sizes=sizes, version=2, seed=seed
        )
        gap = float((alone - together[torch.from_numpy(group.copy())]).abs().max())
        holds(
            gap < 1e-12,
            solver,
            "row-wise: a client's result does not depend on the others",
            gap,
        )


def _on_all_samples(solver: Solver) -> Solver:
    """Return the same solver with steps on all samples of a client."""
    if solver.batch_size is None:
        return solver
    if batches_per_step(solver) > 1:
        return with_options(solver, batch_size=None, accumulate=1)
    return with_options(solver, batch_size=None)


def _fixed_point(solver: Solver, rounds: int, seed: int) -> None:
    exact = _on_all_samples(solver)
    curvature = 0.8
    target = np.array([1.0, -2.0])
    problem = quadratics([target], curvature)
    oracle = problem.task.bind(problem)
    theta = oracle.initial(seed)
    client = np.array([0])
    local = LocalWork.plain(oracle, exact)
    for _ in range(rounds):
        theta = (
            theta
            + work(
                local, theta, clients=client, sizes=problem.sizes, version=0, seed=seed
            )[0]
        )
    traits = traits_of(solver, SolverTraits)
    decay = traits.weight_decay
    if traits.scale_free:
        near = solver.rate(0) * int(exact.steps_for(problem.sizes)[0])
    else:
        near = 1e-6
    optimum = torch.from_numpy(curvature * target / (curvature + decay))
    gap = float((theta - optimum).abs().max())
    holds(
        gap < near,
        solver,
        "one quadratic client ends at its optimum",
        f"{theta.tolist()} for {optimum.tolist()}",
    )
    moved = work(
        local, optimum, clients=client, sizes=problem.sizes, version=0, seed=seed
    )[0]
    still = float(torch.linalg.vector_norm(moved))
    exact_zero = (
        not traits.scale_free or decay == 0
    )  # else it magnifies rounding errors
    holds(
        still < (1e-12 if exact_zero else near),
        solver,
        "its optimum is a fixed point",
        still,
    )


def _traits_hold(solver: Solver, seed: int) -> None:
    """Check the declared traits that local work can show."""
    traits = traits_of(solver, SolverTraits)
    if traits.plain_gradient:
        _plain_steps(solver, traits)
        _plain_work(solver, traits, seed)
    if traits.constant_rate:
        rates = {solver.rate(version) for version in (0, 1, 7)}
        holds(
            len(rates) == 1,
            solver,
            "declared constant_rate: the learning rate stays the same",
            rates,
        )
    if traits.scale_free:
        _same_on_every_scale(solver, traits)
    if traits.ignores_start:
        _ends_at_own_sums(solver, seed)
    if traits.sends_only_updates:
        memory = memory_of(solver)
        holds(
            memory is None,
            solver,
            "declared sends_only_updates: it remembers nothing",
            memory,
        )


def _same_on_every_scale(solver: Solver, traits: SolverTraits) -> None:
    """Check the size of the first step, and the moves on gradients of three sizes."""
    source = torch.Generator().manual_seed(0)
    gradients = torch.randn(4, 2, 5, generator=source, dtype=torch.float64)
    start = torch.zeros(2, 5, dtype=torch.float64)  # where weight decay is 0
    moves = []
    for size in (1.0, 1e3, 1e6):
        rule = solver.rule(start, 0)
        steps = []
        for gradient in size * gradients:
            moved = gradient.clone()
            for transform in rule.transforms:
                moved = transform(moved, start)
            steps.append(moved.clone())
        moves.append(torch.stack(steps))
    if not rule.transforms:  # the optimiser is in the memory of the solver
        return
    gap = max(float((other / moves[0] - 1).abs().max()) for other in moves[1:])
    holds(
        gap < 1e-6 or traits.clips,
        solver,
        "declared scale_free: steps do not depend on the size of the gradient",
        gap,
    )
    if traits.first_step is not None:
        gap = float((moves[0][0].abs() - traits.first_step).abs().max())
        holds(
            gap < 1e-6 * traits.first_step,
            solver,
            "declared first_step: each coordinate moves that far, times the rate",
            gap,
        )


def _ends_at_own_sums(solver: Solver, seed: int) -> None:
    """Check that a client with the loss ``|theta - s|^2 / 2`` ends at s, from two models."""
    target = np.array([1.0, -2.0])
    problem = quadratics([target])
    local = LocalWork.plain(problem.task.bind(problem), solver)
    for start in ([0.0, 0.0], [3.0, 0.5]):
        theta = torch.tensor(start, dtype=torch.float64)
        client = np.array([0])
        moved = work(
            local, theta, clients=client, sizes=problem.sizes, version=0, seed=seed
        )[0]
        gap = float((theta + moved - torch.from_numpy(target)).abs().max())
        holds(
            gap < 1e-12,
            solver,
            "declared ignores_start: a client ends at its own sums, from any model",
            gap,
        )


def _plain_steps(solver: Solver, traits: SolverTraits) -> None:
    """Check three steps of the rule, with random gradients."""
    source = torch.Generator().manual_seed(0)
    start = torch.randn(2, 4, generator=source, dtype=torch.float64)
    rule = solver.rule(start, 0)
    rows = start.clone()
    holds(
        rule.point is None,
        solver,
        "declared plain_gradient: gradients are taken at the client's own model",
    )
    for _ in range(3):
        gradient = torch.randn(2, 4, generator=source, dtype=torch.float64)
        wanted = rows - solver.rate(0) * (
            gradient + traits.weight_decay * rows + traits.pull * (rows - start)
        )
        moved = gradient.clone()
        for transform in rule.transforms:
            moved = transform(moved, rows)
        rows = rows - rule.rate * moved
        gap = float((rows - wanted).abs().max())
        holds(
            gap < 1e-12,
            solver,
            "declared plain_gradient: a step is rate (g + decay w + pull (w - theta))",
            gap,
        )


def _plain_work(solver: Solver, traits: SolverTraits, seed: int) -> None:
    """Check a whole piece of work of one quadratic client."""
    exact = _on_all_samples(solver)
    curvature = 0.8
    target = np.array([1.0, -2.0])
    problem = quadratics([target], curvature)
    local = LocalWork.plain(problem.task.bind(problem), exact)
    start = torch.tensor([0.5, 0.25], dtype=torch.float64)
    rows = start.clone()
    rate = solver.rate(0)
    for _ in range(int(exact.steps_for(problem.sizes)[0])):
        gradient = curvature * (rows - torch.from_numpy(target))
        rows = rows - rate * (
            gradient + traits.weight_decay * rows + traits.pull * (rows - start)
        )
    reached = (
        start
        + work(
            local,
            start,
            clients=np.array([0]),
            sizes=problem.sizes,
            version=0,
            seed=seed,
        )[0]
    )
    gap = float((reached - rows).abs().max())
    holds(
        gap < 1e-12,
        solver,
        "declared plain_gradient: local work is these steps and nothing else",
        gap,
    )
