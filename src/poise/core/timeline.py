"""The schedule of a federation: time is data, made before and apart from any learning."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from poise.core.durations import Durations
from poise.core.errors import require
from poise.core.protocols import Clock, Times
from poise.core.types import Cohort, Flight, Ints, Sky, Step


def launch(cohort: Cohort, times: Times, now: float, version: int, seed: int) -> tuple[Flight, ...]:
    """The work that a cohort starts now on a model version."""
    finish = now + times.of(cohort.clients, version, seed)
    rows = zip(finish, cohort.clients, cohort.occurrences(), cohort.weights, strict=True)
    return tuple(Flight(float(f), int(c), version, int(o), float(w)) for f, c, o, w in rows)


def timeline(
    clock: Clock, durations: Durations, clients: int | None, time: float | None, aggregations: int | None, seed: int
) -> Iterator[Step]:
    """The steps of a clock when every idle client starts again at once.

    Ends after ``aggregations`` steps, or before the first step later than ``time``.
    """
    require(time is not None or aggregations is not None, "a timeline needs an end", "give time= or aggregations=")
    if clients is None:
        known = durations is not None and not isinstance(durations, str)
        require(known, "the number of clients is not known", "give clients=")
        clients = len(durations)  # type: ignore[arg-type]
    times = clock.times(clients)
    sky, index = Sky(), 0
    while aggregations is None or index < aggregations:
        busy = {f.client for f in sky.flights}
        idle: Ints = np.array([i for i in range(clients) if i not in busy], dtype=np.int64)
        started = launch(Cohort(idle, np.ones(len(idle))), times, sky.now, index, seed)
        step, sky = clock.advance(sky, started, index)
        if time is not None and step.time > time * (1 + 1e-9):
            return
        yield step
        index += 1
