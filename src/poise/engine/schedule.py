"""Who starts, and who arrives next."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from poise.core import neighbours
from poise.core.history import History
from poise.core.rng import generator
from poise.core.types import Cohort, InFlight, Step
from poise.engine.plan import Plan
from poise.engine.state import Pace, State


def schedule(state: State, plan: Plan, pace: Pace, history: History) -> tuple[Step, State]:
    """Draw the clients that start now from the present model, and go on to the clock's next
    step.
    """
    n, in_flight, parts = state.index, state.in_flight, plan.parts
    cohort = parts.sampler.draw(plan.setting, generator(plan.seed, "sampler", n), n, history)
    if in_flight.assignments:
        cohort = _idle(cohort, in_flight, plan, n)
    started = pace.launch(cohort, in_flight, n)
    algorithm_state = state.algorithm_state.sending(n)
    if parts.perturbs:
        algorithm_state = neighbours.sent(algorithm_state, started, plan.setting.neighbours())
    state = replace(state, models={**state.models, n: state.theta}, algorithm_state=algorithm_state)
    step, in_flight = pace.next_step(started, state)
    return step, replace(state, in_flight=in_flight)


def _idle(cohort: Cohort, in_flight: InFlight, plan: Plan, n: int) -> Cohort:
    """Of those drawn, who is not at work: at most as many as keep the number at work at the size of
    the cohort.
    """
    busy = np.zeros(plan.setting.clients, dtype=bool)
    busy[[f.client for f in in_flight.assignments]] = True
    free = np.flatnonzero(~busy[cohort.clients])
    room = max(len(cohort.clients) - len(in_flight.assignments), 0)
    if len(free) > room:
        free = np.sort(generator(plan.seed, "start", n).permutation(free)[:room])
    return Cohort(cohort.clients[free], cohort.weights[free])
