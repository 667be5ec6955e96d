"""`Asynchronous`: the server aggregates every single answer at once."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

import numpy as np

from poise.clocks.base import Paced
from poise.core.durations import SAME, Durations, as_durations
from poise.core.parts import part
from poise.core.traits import ClockTraits
from poise.core.types import Assignment, Floats, InFlight, Step


@part("clock", "asynchronous")
class Asynchronous(Paced):
    """Aggregate at each single arrival; simultaneous answers follow by client number.

    A client that answered receives the new model and starts again. The others continue
    with the version they have.

    Args:
        durations: simulated time of a piece of work: numbers (one per client), a
            scenario such as ``"F80"``, `Exponential`, `Trace`, or None for one unit
            each.

    Source: [Fraboni 2023, §4.4.3] (Algorithm 4).

    >>> steps = Asynchronous().timeline([1.0, 0.4], time=1.0)
    >>> [(round(step.time, 1), step.clients.tolist()) for step in steps]
    [(0.4, [1]), (0.8, [1]), (1.0, [0])]
    """

    durations: Durations = None

    waits = False
    traits = ClockTraits(
        schedule="asynchronous",
        balance_rule="d_i = (Σ 1/τ_j) τ_i p_i [Fraboni 2023, eq. 4.36]",
    )

    def advance(
        self, in_flight: InFlight, started: Sequence[Assignment], index: int
    ) -> tuple[Step, InFlight]:
        """Aggregate the first answer; the lowest client number decides ties."""
        assignments = [*in_flight.assignments, *started]
        if not assignments:
            return Step(index, in_flight.now, ()), in_flight
        first = min(assignments, key=attrgetter("finish")).finish * (1 + SAME)
        arrived = min(
            [a for a in assignments if a.finish <= first], key=attrgetter("client")
        )
        now = max(in_flight.now, arrived.finish)
        rest = tuple([a for a in assignments if a is not arrived])
        return Step(index, now, (arrived,)), InFlight(now, rest)

    def unbiased_weights(self, durations: Durations, importance: Floats) -> Floats:
        """``d_i = (sum_j 1/tau_j) tau_i p_i``, tau_i the mean time of client i.

        Source: [Fraboni 2023, eq. 4.36].
        """
        p = np.asarray(importance, dtype=np.float64)
        if durations is None:
            durations = self.durations
        tau = as_durations(durations, len(p)).mean(len(p))
        return np.asarray((1 / tau).sum() * tau * p)

    def identical_weights(self, base: Floats, clients: int) -> Floats:
        """Return ``M p_i``, which is 1 for clients of equal importance."""
        return np.asarray(base, dtype=np.float64) * clients
