"""The loop over rounds: schedule, aggregate, measure, record.

The engine knows the protocols of the slots, and no implementation. Each round takes a
`State` and returns the next, so a run can continue from any recorded round.
"""

from __future__ import annotations

import time as wall
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from poise.core.algorithm_state import AlgorithmState, memory_of
from poise.core.end_rules import EndTracker
from poise.core.errors import IncompatibleParts
from poise.core.history import History
from poise.core.local_models import LocalModels
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
    """Callbacks of a run.

    Args:
        after_round: called with the record of every round.
        stop: called before every round; True ends the run.
    """

    after_round: Callable[[Record], None] = lambda record: None
    stop: Callable[[], bool] = lambda: False


@dataclass(frozen=True)
class Environment:
    """Where a run happens: its workers, its ledger, its history and its observers.

    ``ending`` decides from the records whether the run ends early.
    """

    backend: Backend
    wire: Wire
    journal: Journal
    history: History
    observers: Observers = Observers()
    ending: EndTracker = field(default_factory=EndTracker)

    def stops(self) -> bool:
        """Return whether the run has ended early, or an observer stops it."""
        return bool(self.ending.reason) or self.observers.stop()


def initial(oracle: Oracle, plan: Plan) -> State:
    """Return the state before the first aggregation."""
    theta = oracle.initial(plan.seed)
    trainable = theta[: oracle.layout.trainable]
    memory = memory_of(plan.parts.solver)
    shared = {} if memory is None else memory.shared(trainable)
    return State(
        index=0,
        theta=theta,
        server=plan.parts.server.init(trainable),
        algorithm_state=AlgorithmState(shared),
    )


def run(state: State, plan: Plan, environment: Environment) -> State:
    """Run until the rounds or the time are used up, a rule ends the run, or it is stopped."""
    history = environment.history
    pace = _pace(plan, environment)
    executor = LazyExecutor(environment.backend, plan.parts.reports, idle=plan.idle)
    context = Context(plan, environment.wire, executor=executor, history=history)
    prefetched: tuple[Step, State] | None = None
    while not environment.stops() and not plan.full(state.index):
        began = wall.perf_counter()
        step, scheduled = prefetched or schedule(state, plan, pace, history)
        if plan.over(step):
            break
        result = aggregate(scheduled, step, context)
        state = result.state
        history.add(result.record)
        if pace.prefetchable:  # the next step shows whether this one is the last
            prefetched = schedule(state, plan, pace, history)
        last = (
            plan.full(state.index)
            or (prefetched is not None and plan.over(prefetched[0]))
            or environment.ending.spends(result.record, wall.perf_counter() - began)
        )
        _record_round(result, plan, environment, last=last, began=began)
    return state


def _pace(plan: Plan, environment: Environment) -> Pace:
    """Return simulated time, or real time if the backend's clients take it."""
    if not environment.backend.real_time:
        return simulated(plan)
    if plan.parts.by_given_times:
        name = type(plan.parts.weighting).__name__
        raise IncompatibleParts(
            (
                f"{name}: weights follow from the clock's durations, but these clients "
                "take real time"
            ),
            f"use {ESTIMATE}",
        )
    assert isinstance(environment.backend, RealTimeBackend)
    return RealTime(
        plan.parts.clock,
        environment.backend,
        reports=plan.parts.reports,
        end=plan.end,
        stop=environment.observers.stop,
    )


def _record_round(
    result: RoundResult, plan: Plan, environment: Environment, last: bool, began: float
) -> None:
    """Measure the new model if it is due, and record the round."""
    state = result.state
    record = result.record
    history = environment.history
    if last or state.index % plan.evaluate_every == 0:
        metrics = environment.backend.measure(
            state.theta,
            plan.metrics,
            state.algorithm_state,
            LocalModels(result.updates),
        )
        record = replace(record, metrics=metrics)
    record = replace(record, seconds=wall.perf_counter() - began)
    history.note(record.metrics)
    tensors = {**state.server, **state.algorithm_state.tensors(), **history.tensors()}
    updates = result.updates.stack if plan.keep_updates else None
    environment.journal.append(
        record, state.theta, tensors, result.client_state, updates
    )
    environment.ending.add(record)
    environment.observers.after_round(record)
