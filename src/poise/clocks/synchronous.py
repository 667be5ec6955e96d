"""`Synchronous`: the server waits for the sampled clients, or until a deadline."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from poise.clocks.base import Paced, counted_weights
from poise.core.durations import SAME, Durations
from poise.core.errors import require
from poise.core.parts import part
from poise.core.traits import ClockTraits
from poise.core.types import Assignment, Floats, InFlight, Step


@part("clock", "synchronous")
class Synchronous(Paced):
    """Aggregate when every sampled client has answered; staleness is always 0.

    A round lasts until its slowest client has answered. With ``enough`` it ends after
    that many answers, with ``deadline`` after that time at the latest. The round
    excludes later answers, and the record lists them. Slow clients then count too
    little, unless a weighting corrects for it (`TimeBased`).

    Args:
        durations: simulated time that each client needs for a piece of work: numbers
            (one per client), a scenario such as ``"F80"``, `Exponential`, `Trace`, or
            None for one unit each.
        deadline: the longest time of a round, in the unit of the durations (seconds on
            real nodes).
        enough: the number of answers that ends a round; answers at the same time as the
            last of them count as well.

    >>> [step.time for step in Synchronous().timeline([1.0, 2.0], aggregations=2)]
    [2.0, 4.0]
    >>> steps = Synchronous(deadline=1.5).timeline([1.0, 2.0], aggregations=2)
    >>> [(step.time, step.clients.tolist()) for step in steps]
    [(1.5, [0]), (3.0, [0])]

    Source: [Fraboni 2023, §4.3.1].
    """

    durations: Durations = None
    deadline: float | None = None
    enough: int | None = None

    waits = True

    def __post_init__(self) -> None:
        require(
            self.deadline is None or 0 < self.deadline < np.inf,
            f"Synchronous: deadline must be above 0, not {self.deadline}",
            where="deadline",
        )
        require(
            self.enough is None or self.enough >= 1,
            f"Synchronous: enough must be at least 1, not {self.enough}",
            where="enough",
        )
        super().__post_init__()

    @property
    def traits(self) -> ClockTraits:
        """Declare that clients have the newest model, and if a round may miss some."""
        return ClockTraits(
            one_version=True,
            leaves_clients_behind=self.deadline is not None or self.enough is not None,
            balance_needs_everyone=self.enough is not None,
            schedule="synchronous",
        )

    def advance(
        self, in_flight: InFlight, started: Sequence[Assignment], index: int
    ) -> tuple[Step, InFlight]:
        """Aggregate all answers that arrive before the round ends; others are late."""
        assignments = (*in_flight.assignments, *started)
        end = self._end_of_round(in_flight.now, assignments)
        by_end = end * (1 + SAME)
        arrived = tuple(a for a in assignments if a.finish <= by_end)
        late = tuple(a for a in assignments if not a.finish <= by_end)
        if not late:
            end = max((a.finish for a in assignments), default=in_flight.now)
        return Step(index, end, arrived, late=late), InFlight(end)

    def _end_of_round(self, now: float, assignments: Sequence[Assignment]) -> float:
        """Return when ``deadline`` or ``enough`` ends the round; inf without them."""
        end = np.inf
        if self.deadline is not None:
            end = now + self.deadline
        if self.enough is not None and self.enough < len(assignments):
            end = min(end, sorted(a.finish for a in assignments)[self.enough - 1])
        return end

    def unbiased_weights(self, durations: Durations, importance: Floats) -> Floats:
        """``d_i = p_i``: clients arrive in their round [Fraboni 2023, Table 4.1].

        With ``deadline`` or ``enough``: ``d_i = p_i / f_i``, f_i the share of rounds in
        which client i arrives in time.
        """
        p = np.asarray(importance, dtype=np.float64)
        if self.deadline is None and self.enough is None:
            return p
        return counted_weights(self, durations, importance=p)

    def identical_weights(self, base: Floats, clients: int) -> Floats:
        """Return the base weights."""
        return np.asarray(base, dtype=np.float64)
