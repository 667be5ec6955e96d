"""Who starts, and who arrives next."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from poise.core import neighbours
from poise.core.history import History
from poise.core.rng import generator
from poise.core.types import Cohort, Sky, Step
from poise.engine.plan import Plan
from poise.engine.state import Pace, State


def schedule(state: State, plan: Plan, pace: Pace, history: History) -> tuple[Step, State]:
    """Draw the clients that start now from the present model, and go on to the clock's next step."""
    n, sky, parts = state.index, state.sky, plan.parts
    cohort = parts.sampler.draw(plan.setting, generator(plan.seed, "sampler", n), n, history)
    if sky.flights:
        cohort = _idle(cohort, sky, plan, n)
    started = pace.launch(cohort, sky, n)
    memories = state.memories.sending(n)
    if parts.perturbs:
        memories = neighbours.sent(memories, started, plan.setting.neighbours())
    state = replace(state, models={**state.models, n: state.theta}, memories=memories)
    step, sky = pace.next_step(started, state)
    return step, replace(state, sky=sky)


def _idle(cohort: Cohort, sky: Sky, plan: Plan, n: int) -> Cohort:
    """Of those drawn, who is not at work: at most as many as keep the number at work at the size of the cohort."""
    busy = np.zeros(plan.setting.clients, dtype=bool)
    busy[[f.client for f in sky.flights]] = True
    free = np.flatnonzero(~busy[cohort.clients])
    room = max(len(cohort.clients) - len(sky.flights), 0)
    if len(free) > room:
        free = np.sort(generator(plan.seed, "start", n).permutation(free)[:room])
    return Cohort(cohort.clients[free], cohort.weights[free])
