"""The server waits for everyone it asked, or for so many, or for so long."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from poise.clocks.base import Paced, in_time
from poise.core.durations import SAME, Durations
from poise.core.errors import require
from poise.core.parts import part
from poise.core.traits import ClockTraits
from poise.core.types import Assignment, Floats, InFlight, Step


@part("clock", "synchronous")
class Synchronous(Paced):
    """Aggregate when every sampled client has answered; staleness is always 0 (E section 4.3.1).

    A round lasts as long as its slowest client needs; with ``enough`` until that many have
    answered, with ``deadline`` for so long at most. Whoever answers later is left out of the round,
    and the record says so. Slow clients then count too little, unless a weighting makes up for it
    (`TimeBased`).

    Args:
        durations: simulated time that each client needs for a piece of work: numbers (one per
            client), a scenario such as ``"F80"``, `Exponential`, `Trace`, or None for one unit
            each.
        deadline: the longest that a round lasts, in the unit of the durations (seconds on real
            nodes).
        enough: how many answers are waited for; those that come at the same time as the last of
            them count as well.

    >>> [step.time for step in Synchronous().timeline([1.0, 2.0], aggregations=2)]
    [2.0, 4.0]
    >>> [(s.time, s.clients.tolist()) for s in Synchronous(deadline=1.5).timeline([1.0, 2.0], aggregations=2)]
    [(1.5, [0]), (3.0, [0])]
    """

    durations: Durations = None
    deadline: float | None = None
    enough: int | None = None

    waits = True

    def __post_init__(self) -> None:
        late = self.deadline
        require(
            late is None or 0 < late < np.inf,
            f"Synchronous: deadline must be above 0, not {late}",
            where="deadline",
        )
        least = self.enough is None or self.enough >= 1
        require(least, f"Synchronous: enough must be at least 1, not {self.enough}", where="enough")
        super().__post_init__()

    @property
    def traits(self) -> ClockTraits:
        """Everyone works on the newest model; with a deadline or ``enough``, not everyone is
        heard.
        """
        return ClockTraits(
            one_version=True,
            leaves_clients_behind=self.deadline is not None or self.enough is not None,
            balance_needs_everyone=self.enough is not None,
            schedule="synchronous",
        )

    def advance(
        self, in_flight: InFlight, started: Sequence[Assignment], index: int
    ) -> tuple[Step, InFlight]:
        """All that is under way arrives, and the slowest sets the time; or whoever is there when
        the round ends.
        """
        asked = (*in_flight.assignments, *started)
        end = self._end(in_flight.now, asked)
        in_time = [f.finish <= end * (1 + SAME) for f in asked]
        arrived = tuple(f for f, there in zip(asked, in_time, strict=True) if there)
        late = tuple(f for f, there in zip(asked, in_time, strict=True) if not there)
        if not late:
            end = max((f.finish for f in asked), default=in_flight.now)
        return Step(index, end, arrived, late), InFlight(end)

    def _end(self, now: float, asked: Sequence[Assignment]) -> float:
        """When a round ends in which not everyone is waited for."""
        ends = [np.inf if self.deadline is None else now + self.deadline]
        if self.enough is not None and self.enough < len(asked):
            ends.append(sorted(f.finish for f in asked)[self.enough - 1])
        return min(ends)

    def unbiased_weights(self, durations: Durations, importance: Floats) -> Floats:
        """``d_i = p_i``: everyone arrives in every aggregation it was asked for (E, table 4.1).

        ``d_i = p_i / f_i`` where not all are waited for, f_i the share of rounds in which client i
        is in time.
        """
        p = np.asarray(importance, dtype=np.float64)
        if self.deadline is None and self.enough is None:
            return p
        return in_time(self, durations, p)

    def identical_weights(self, base: Floats, clients: int) -> Floats:
        """The base weights."""
        return np.asarray(base, dtype=np.float64)
