"""The schedule of a federation: the steps of a clock, independent of any learning."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sized
from typing import Any, TypeAlias

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
    """Return the work that a cohort starts now on a model version.

    A client that never comes back does not start.
    """
    finish_times = now + times.of(cohort.clients, version, seed, now)
    rows = zip(
        finish_times.tolist(),
        cohort.clients.tolist(),
        cohort.occurrences().tolist(),
        cohort.weights.tolist(),
        strict=True,
    )
    return tuple(
        Assignment(finish, client, version, occurrence, weight)
        for finish, client, occurrence, weight in rows
        if finish < np.inf
    )


def in_arrival_order(assignments: Iterable[Assignment]) -> list[Assignment]:
    """Sort assignments by time of arrival, and those that arrive together by client."""
    ordered = sorted(assignments)
    for k in range(1, len(ordered)):
        j = k
        while j and _moves_ahead(ordered[j], ordered[j - 1]):
            ordered[j - 1], ordered[j] = ordered[j], ordered[j - 1]
            j -= 1
    return ordered


def _moves_ahead(later: Assignment, earlier: Assignment) -> bool:
    """Return whether both arrive together and the later has the smaller client."""
    # inf is close to inf only
    together = math.isclose(earlier.finish, later.finish, rel_tol=SAME)
    return later.client < earlier.client and together


def timeline(
    clock: Clock,
    durations: Durations,
    clients: int | None,
    time: float | None,
    aggregations: int | None,
    seed: int,
) -> Iterator[Step]:
    """Yield the steps of a clock if every idle client starts again at once.

    Ends after ``aggregations`` steps, before the first step later than ``time``, or
    when no client answers any more. ``durations`` replace the clock's own durations,
    unless None.
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
        known = (
            isinstance(given, Sized) and not isinstance(given, str) and len(given) > 0
        )
        require(known, "the number of clients is not known", "give clients=")
        clients = len(given)
    if durations is not None:
        clock = with_options(clock, durations=durations)
    for step, _ in clock_steps(clock, clients, seed):
        after_end = time is not None and step.time > time * (1 + SAME)
        enough = aggregations is not None and step.index >= aggregations
        if after_end or enough or step.time == np.inf:
            return
        yield step


def clock_steps(
    clock: Clock, clients: int, seed: int
) -> Iterator[tuple[Step, InFlight]]:
    """Yield every step and the work in flight after it, without end."""
    times = clock.times(clients)
    in_flight = InFlight()
    index = 0
    while True:
        busy = {assignment.client for assignment in in_flight.assignments}
        idle: Ints = np.array(
            [i for i in range(clients) if i not in busy], dtype=np.int64
        )
        cohort = Cohort(idle, np.ones(len(idle)))
        started = launch(cohort, times, now=in_flight.now, version=index, seed=seed)
        step, in_flight = next_step(
            clock, times, in_flight=in_flight, started=started, index=index
        )
        yield step, in_flight
        index += 1


def next_step(
    clock: Clock,
    times: Times,
    in_flight: InFlight,
    started: tuple[Assignment, ...],
    index: int,
) -> tuple[Step, InFlight]:
    """Return the clock's next step and the work in flight after it.

    If no client works and none will answer any more, the step is at time infinity.
    """
    nobody_works = not started and not in_flight.assignments
    if nobody_works and in_flight.now >= times.last:
        return Step(index, np.inf, ()), in_flight
    step, after = clock.advance(in_flight, started, index)
    if (
        nobody_works
        and step.time == in_flight.now
        and isinstance(times, KnowsNextStart)
    ):
        # no client can start before: go on to that time, or time would stand still
        step = Step(index, times.next(in_flight.now), ())
        after = InFlight(step.time)
    return step, after


def shares(clock: Clock, clients: int, arrivals: int = 1000, seed: int = 0) -> Floats:
    """Return the long-run share of aggregations that include each client, (N,).

    Exact if the timeline repeats itself; otherwise counted until every client has
    arrived ``arrivals`` times.
    """
    counts = np.zeros(clients)
    earlier_states: dict[RemainingTimes, tuple[int, Floats]] = {}
    limit = 50 * arrivals * clients
    times: Any = clock.times(clients)
    unit = float(times.mean(clients).mean())
    may_repeat = isinstance(times, FixedDurations)  # random times do not repeat
    for step, in_flight in clock_steps(clock, clients, seed):
        counts[step.clients] += 1
        state = _remaining_times(in_flight, unit)
        if may_repeat and state in earlier_states and counts.min() > 0:
            index, before = earlier_states[state]
            if ((counts - before) > 0).all():
                return (counts - before) / (step.index - index)
        earlier_states.setdefault(state, (step.index, counts.copy()))
        if counts.min() >= arrivals or step.index >= limit or step.time == np.inf:
            break
    if counts.min() == 0:
        raise InvalidOption(
            f"client {int(counts.argmin())} never arrives: no weight can make up for "
            "that"
        )
    return np.asarray(counts / (step.index + 1))


RemainingTimes: TypeAlias = tuple[tuple[int, float], ...]
"""Clients at work and the times until they answer."""


def _remaining_times(in_flight: InFlight, unit: float) -> RemainingTimes:
    """Return the state of a timeline; equal states continue in the same way."""
    remaining = [
        (assignment.client, round((assignment.finish - in_flight.now) / unit, 9))
        for assignment in in_flight.assignments
    ]
    return tuple(sorted(remaining))
