"""The loop over rounds, written once: schedule, aggregate, measure, record.

The engine knows the protocols of the slots and no implementation. Its state is one value that is
passed in and returned, so a run goes on from any recorded round.
"""

from __future__ import annotations

import time as wall
from collections.abc import Callable
from dataclasses import dataclass, replace

from poise.core.algorithm_state import AlgorithmState, memory_of
from poise.core.errors import IncompatibleParts
from poise.core.history import History
from poise.core.protocols import Backend, Oracle
from poise.core.types import Record, Step
from poise.engine.executor import LazyExecutor
from poise.engine.plan import ESTIMATE, Plan, simulated
from poise.engine.realtime import RealTime, RealTimeBackend
from poise.engine.round import Context, RoundResult, aggregate
from poise.engine.schedule import schedule
from poise.engine.state import Journal, Pace, State
from poise.engine.wire import Wire


@dataclass(frozen=True)
class Observers:
    """Who looks at a run from outside: called after every round, and asked before each whether to
    stop.
    """

    after_round: Callable[[Record], None] = lambda record: None
    stop: Callable[[], bool] = lambda: False


@dataclass(frozen=True)
class Environment:
    """Where a run happens: its workers, its ledger, its past, and those who look at it."""

    backend: Backend
    wire: Wire
    journal: Journal
    history: History
    observers: Observers = Observers()


def initial(oracle: Oracle, plan: Plan) -> State:
    """The state before the first aggregation."""
    theta = oracle.initial(plan.seed)
    moving = theta[: oracle.layout.trainable]
    memory = memory_of(plan.parts.solver)
    shared = {} if memory is None else memory.shared(moving)
    return State(0, theta, plan.parts.server.init(moving), algorithm_state=AlgorithmState(shared))


def run(state: State, plan: Plan, around: Environment) -> State:
    """Go on until the budget of rounds or of time is used, or somebody says stop."""
    pace = _pace(plan, around)
    executor = LazyExecutor(around.backend, plan.parts.reports, plan.idle)
    context = Context(plan, around.wire, executor, around.history)
    prefetchable: tuple[Step, State] | None = None
    while not around.observers.stop() and not plan.full(state.index):
        began = wall.perf_counter()
        step, under_way = prefetchable or schedule(state, plan, pace, around.history)
        if plan.over(step):
            break
        result = aggregate(under_way, step, context)
        state = result.state
        around.history.add(result.record)
        if pace.prefetchable:  # the next step tells whether this one is the last
            prefetchable = schedule(state, plan, pace, around.history)
        last = plan.full(state.index) or (prefetchable is not None and plan.over(prefetchable[0]))
        _keep(result, plan, around, last, began)
    return state


def _pace(plan: Plan, around: Environment) -> Pace:
    """Simulated time, or time as it passes where clients really take their time."""
    if not around.backend.real_time:
        return simulated(plan)
    if plan.parts.by_given_times:
        whose = type(plan.parts.weighting).__name__
        raise IncompatibleParts(
            f"{whose}: clients take the time they take, not the clock's durations", ESTIMATE
        )
    assert isinstance(around.backend, RealTimeBackend)
    return RealTime(
        plan.parts.clock,
        around.backend,
        reports=plan.parts.reports,
        end=plan.end,
        stop=around.observers.stop,
    )


def _keep(result: RoundResult, plan: Plan, around: Environment, last: bool, began: float) -> None:
    """Measure the new model where it is due, and write the round down."""
    state, record, history = result.state, result.record, around.history
    if last or state.index % plan.evaluate_every == 0:
        metrics = around.backend.measure(state.theta, plan.metrics, state.algorithm_state)
        record = replace(record, metrics=metrics)
    record = replace(record, seconds=wall.perf_counter() - began)
    history.note(record.metrics)
    tensors = {**state.server, **state.algorithm_state.tensors(), **history.tensors()}
    updates = result.updates.stack if plan.keep_updates else None
    around.journal.append(record, state.theta, tensors, result.client_state, updates)
    around.observers.after_round(record)
