"""The schedule of a federation: time is data, made before and apart from any learning."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sized
from typing import Any

import numpy as np

from poise.core.capabilities import HasDurations, KnowsNextStart
from poise.core.durations import SAME, Durations, FixedDurations
from poise.core.errors import InvalidOption, require
from poise.core.parts import with_options
from poise.core.protocols import Clock, Times
from poise.core.types import Assignment, Cohort, Floats, InFlight, Ints, Step


def launch(
    cohort: Cohort, times: Times, now: float, version: int, seed: int
) -> tuple[Assignment, ...]:
    """The work that a cohort starts now on a model version; whoever is away for good does not
    start.
    """
    finish = now + times.of(cohort.clients, version, seed, now)
    rows = zip(
        finish.tolist(),
        cohort.clients.tolist(),
        cohort.occurrences().tolist(),
        cohort.weights.tolist(),
        strict=True,
    )
    return tuple(Assignment(f, c, version, o, w) for f, c, o, w in rows if f < np.inf)


def in_arrival_order(assignments: Iterable[Assignment]) -> list[Assignment]:
    """Flights by time of arrival; those at the same time by client."""
    ordered = sorted(assignments)
    for k in range(1, len(ordered)):
        # a later one moves ahead of those that arrive at the same time and have a larger client
        # number
        j = k
        while (
            j
            and ordered[j].client < ordered[j - 1].client
            and _same(ordered[j - 1].finish, ordered[j].finish)
        ):
            ordered[j - 1], ordered[j] = ordered[j], ordered[j - 1]
            j -= 1
    return ordered


def _same(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=SAME)  # infinity is close to itself only


def timeline(
    clock: Clock,
    durations: Durations,
    clients: int | None,
    time: float | None,
    aggregations: int | None,
    seed: int,
) -> Iterator[Step]:
    """The steps of a clock when every idle client starts again at once.

    Ends after ``aggregations`` steps, before the first step later than ``time``, or when nobody
    answers any more. ``durations`` take the place of the clock's own where they are given.
    """
    require(
        time is not None or aggregations is not None,
        "a timeline needs an end",
        "give time= or aggregations=",
    )
    given: Any = durations
    if given is None and isinstance(clock, HasDurations):
        given = clock.durations
    if clients is None:
        known = isinstance(given, Sized) and not isinstance(given, str) and len(given) > 0
        require(known, "the number of clients is not known", "give clients=")
        clients = len(given)
    used = clock if durations is None else with_options(clock, durations=durations)
    for step, _ in clock_steps(used, clients, seed):
        late = time is not None and step.time > time * (1 + SAME)
        if late or (aggregations is not None and step.index >= aggregations) or step.time == np.inf:
            return
        yield step


def clock_steps(clock: Clock, clients: int, seed: int) -> Iterator[tuple[Step, InFlight]]:
    """Every step and the in_flight after it, without end."""
    times = clock.times(clients)
    in_flight, index = InFlight(), 0
    while True:
        busy = {f.client for f in in_flight.assignments}
        idle: Ints = np.array([i for i in range(clients) if i not in busy], dtype=np.int64)
        started = launch(Cohort(idle, np.ones(len(idle))), times, in_flight.now, index, seed)
        step, in_flight = next_step(clock, times, in_flight, started, index)
        yield step, in_flight
        index += 1


def next_step(
    clock: Clock, times: Times, in_flight: InFlight, started: tuple[Assignment, ...], index: int
) -> tuple[Step, InFlight]:
    """The clock's next step; one at infinity when nobody is at work and nobody answers any more."""
    if not started and not in_flight.assignments and in_flight.now >= times.last:
        return Step(index, np.inf, ()), in_flight
    step, after = clock.advance(in_flight, started, index)
    if (
        not started
        and not in_flight.assignments
        and step.time == in_flight.now
        and isinstance(times, KnowsNextStart)
    ):
        step = Step(
            index, times.next(in_flight.now), ()
        )  # nobody can begin before: time must not stand still
        after = InFlight(step.time)
    return step, after


def shares(clock: Clock, clients: int, arrivals: int = 1000, seed: int = 0) -> Floats:
    """The long-run share of aggregations in which each client takes part, (N,), from the timeline.

    Exact where the timeline repeats itself; otherwise counted until everyone has arrived
    ``arrivals`` times.
    """
    counts, seen = np.zeros(clients), dict[Any, tuple[int, Floats]]()
    limit = 50 * arrivals * clients
    times: Any = clock.times(clients)
    unit, regular = (
        float(times.mean(clients).mean()),
        isinstance(times, FixedDurations),
    )  # random times do not repeat
    for step, in_flight in clock_steps(clock, clients, seed):
        counts[step.clients] += 1
        state = tuple(
            sorted(
                (f.client, round((f.finish - in_flight.now) / unit, 9))
                for f in in_flight.assignments
            )
        )
        if regular and state in seen and counts.min() > 0:
            index, before = seen[state]
            if ((counts - before) > 0).all():
                return (counts - before) / (step.index - index)
        seen.setdefault(state, (step.index, counts.copy()))
        if counts.min() >= arrivals or step.index >= limit or step.time == np.inf:
            break
    if counts.min() == 0:
        raise InvalidOption(
            f"client {int(counts.argmin())} never arrives: no weight makes up for that"
        )
    return np.asarray(counts / (step.index + 1))
