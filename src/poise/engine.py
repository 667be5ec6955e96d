"""The loop, written once: draw, work, weigh, apply, measure, record.

The engine knows the protocols of the slots and no implementation. Its state is one value that is passed in and
returned; whatever is not in it can be computed again, so a run can be taken up from any recorded round.
"""

from __future__ import annotations

import time as wall
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from poise.core import equation, neighbours
from poise.core.attacking import attacked
from poise.core.checks import check_coefficients, late, refusals, without
from poise.core.errors import IncompatibleParts, UpdateRefused
from poise.core.gauges import readings
from poise.core.history import History
from poise.core.memory import Memories, Named, memory_of, server_side
from poise.core.plan import ESTIMATE, Journal, Pace, Parts, Plan, State, simulated
from poise.core.protocols import Backend, Oracle
from poise.core.realtime import RealTime
from poise.core.rng import generator
from poise.core.types import Cohort, Record, Sky, Step, contributions
from poise.core.vectors import Stack
from poise.core.weights import without_barred
from poise.core.workbench import Workbench

__all__ = ["Journal", "Parts", "Plan", "State", "aggregate", "initial", "run", "schedule"]


def initial(oracle: Oracle, plan: Plan) -> State:
    """The state before the first aggregation."""
    theta = oracle.initial(plan.seed)
    moving = theta[: oracle.layout.trainable]
    memory = memory_of(plan.parts.solver)
    shared = {} if memory is None else memory.shared(moving)
    return State(0, theta, plan.parts.server.init(moving), memories=Memories(shared))


def run(
    state: State, plan: Plan, oracle: Oracle, backend: Backend, journal: Journal, history: History,
    after_round: Callable[[Record], None] = lambda record: None, stop: Callable[[], bool] = lambda: False,
) -> State:  # fmt: skip
    """Go on until the budget of rounds or of time is used, or ``stop`` says so."""
    real = bool(getattr(backend, "real_time", False))
    if real and plan.parts.by_given_times:
        whose = type(plan.parts.weighting).__name__
        raise IncompatibleParts(f"{whose}: clients take the time they take, not the clock's durations", ESTIMATE)
    bench = Workbench(backend, plan.parts.reports, plan.idle, as_they_come=real)
    pace = RealTime(plan.parts.clock, backend, bench.reports, plan.end, stop) if real else simulated(plan)
    ahead: tuple[Step, State] | None = None
    while not stop() and not plan.full(state.index):
        began = wall.perf_counter()
        step, under_way = ahead or schedule(state, plan, pace, history)
        if plan.over(step):
            break
        record, state, own, deltas = aggregate(under_way, step, plan, bench, oracle.layout.trainable, history)
        history.add(record)
        if pace.ahead:  # to know the last round by sight; where time is real, nothing begins before this is recorded
            ahead = schedule(state, plan, pace, history)
        last = plan.full(state.index) or (ahead is not None and plan.over(ahead[0]))
        if last or state.index % plan.evaluate_every == 0:
            record = replace(record, metrics=backend.measure(state.theta, plan.metrics, state.memories))
        record = replace(record, seconds=wall.perf_counter() - began)
        history.note(record.metrics)
        tensors = {**state.server, **state.memories.tensors(), **history.tensors()}
        journal.append(record, state.theta, tensors, own, deltas if plan.keep_updates else None)
        after_round(record)
    return state


def schedule(state: State, plan: Plan, pace: Pace, history: History) -> tuple[Step, State]:
    """Who starts now from the present model, and who arrives for the next aggregation."""
    n, sky, parts = state.index, state.sky, plan.parts
    cohort = parts.sampler.draw(plan.setting, generator(plan.seed, "sampler", n), n, history)
    started = pace.launch(_idle(cohort, sky, plan, n) if sky.flights else cohort, sky, n)
    models, memories = {**state.models, n: state.theta}, state.memories.sending(n)
    if parts.perturbs:
        memories = neighbours.sent(memories, started, plan.setting.neighbours())
    step, sky = pace.next_step(sky, started, n, models, memories)
    return step, replace(state, sky=sky, models=models, memories=memories)


def _idle(cohort: Cohort, sky: Sky, plan: Plan, n: int) -> Cohort:
    """Of those drawn, who is not at work: at most as many as keep the number at work at the size of the cohort."""
    busy = np.zeros(plan.setting.clients, dtype=bool)
    busy[[f.client for f in sky.flights]] = True
    free = np.flatnonzero(~busy[cohort.clients])
    room = max(len(cohort.clients) - len(sky.flights), 0)
    if len(free) > room:
        free = np.sort(generator(plan.seed, "start", n).permutation(free)[:room])
    return Cohort(cohort.clients[free], cohort.weights[free])


def aggregate(
    state: State, step: Step, plan: Plan, bench: Workbench, trainable: int, history: History
) -> tuple[Record, State, Mapping[int, Named], Stack]:
    """One application of the equation, the record of it, what its clients keep, and the updates themselves."""
    n, parts, memories = state.index, plan.parts, state.memories
    updates = bench.collect(step.flights, state.sky.flights, state.models, state.theta, memories)
    updates, aside = attacked(updates, step.flights, state.models, parts.attacks, plan.seed, memories.own, trainable)
    refused = refusals(updates, step.flights, state.theta)
    if refused and not plan.drop_refused:
        raise UpdateRefused(
            f"round {n}: client {refused[0].client} sent {refused[0].reason}",
            "lower the learning rate or clip gradients (clip=); bad_updates='drop' goes on without such clients",
        )
    kept = without(step.flights, refused)
    refused += late(step)
    flights, updates = tuple(step.flights[k] for k in kept), updates.rows(kept)
    clients, base = step.clients[kept], step.weights[kept]
    balance, degree = parts.balance(plan.setting), parts.adjacency(plan.setting)
    plain = base if parts.clock.waits else plan.setting.importance[clients]
    omega = parts.weighting.coefficients(
        base, loss_before=updates.loss_before, loss_after=updates.loss_after, sizes=updates.samples,
        clients=clients, versions=step.versions[kept], round=n, importance=plan.setting.importance[clients],
        lowest_loss=history.lowest(clients), reached=history.reached, seen=history.seen(clients) + 1,
        identical=parts.clock.identical_weights(plain, plan.setting.clients), norms=updates.norms,
        balance=None if balance is None else balance[clients],
        adjacency=None if degree is None else degree[clients],
    )  # fmt: skip
    check_coefficients(omega, clients, n)
    omega = without_barred(omega, clients, history.barred)
    memory, shift = memory_of(parts.solver), None
    if memory is not None:
        importance = plan.setting.importance[clients]
        memories, shift = server_side(memory, memories, flights, updates, parts.solver, importance, trainable)
    direction, total = equation.combine(omega, updates.deltas), float(omega.sum())
    theta, server = equation.step(state.theta, direction, total, parts.server, state.server, trainable, shift)
    if memory is not None:
        shared = memory.observe(memories.shared, theta[:trainable] - state.theta[:trainable])
        memories = replace(memories, shared=shared)
    own: Mapping[int, Named] = memories.kept(flights, updates, aside)
    if parts.perturbs:
        own = neighbours.local_models(own, flights, updates.deltas[:, :trainable], state.models)
    memories = replace(memories, own={**memories.own, **own})
    seen = (n, flights, updates, omega, direction[:trainable])
    up, down = step.traffic(theta.element_size(), len(theta), trainable * len(memories.shared), len(parts.reports))
    record = Record(
        n, step.time, contributions(flights, base, omega, updates), metrics={}, bytes_up=up, bytes_down=down,
        sky=state.sky, refusals=refused, readings=readings(plan.gauges, *seen, history, state.models, bench.spread),
    )  # fmt: skip
    flying = {f.version for f in state.sky.flights}
    models = {v: state.models[v] for v in flying}
    sight = history.see(flights, updates.deltas[:, :trainable])
    own = {c: {**own.get(c, {}), **sight.get(c, {})} for c in {**own, **sight}}
    after = State(n + 1, theta, server, state.sky, models, memories.landed(flying))
    return record, after, own, updates.deltas
