"""Decide which clients start, and which arrive next."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from poise.core import neighbours
from poise.core.history import History
from poise.core.rng import generator
from poise.core.types import Cohort, InFlight, Step
from poise.engine.plan import Plan
from poise.engine.state import Pace, State


def schedule(
    state: State, plan: Plan, pace: Pace, history: History
) -> tuple[Step, State]:
    """Draw the clients that start from the present model, and return the next step."""
    n = state.index
    parts = plan.parts
    rng = generator(plan.seed, "sampler", n)
    cohort = parts.sampler.draw(plan.setting, rng, n, history)
    if state.in_flight.assignments:
        cohort = _without_busy(cohort, state.in_flight, plan, n=n)
    started = pace.launch(cohort, state.in_flight, n)
    algorithm_state = state.algorithm_state.sending(n)
    if parts.perturbs:
        algorithm_state = neighbours.sent(
            algorithm_state, started, plan.setting.neighbours()
        )
    models = {**state.models, n: state.theta}
    state = replace(state, models=models, algorithm_state=algorithm_state)
    step, in_flight = pace.next_step(started, state)
    return step, replace(state, in_flight=in_flight)


def _without_busy(cohort: Cohort, in_flight: InFlight, plan: Plan, n: int) -> Cohort:
    """Return the drawn clients that are not at work.

    The number of clients at work never exceeds the size of the cohort. If too many are
    free, random ones of them start.
    """
    busy = np.zeros(plan.setting.clients, dtype=bool)
    busy[[a.client for a in in_flight.assignments]] = True
    free = np.flatnonzero(~busy[cohort.clients])
    room = max(len(cohort.clients) - len(in_flight.assignments), 0)
    if len(free) > room:
        free = np.sort(generator(plan.seed, "start", n).permutation(free)[:room])
    return Cohort(cohort.clients[free], cohort.weights[free])
