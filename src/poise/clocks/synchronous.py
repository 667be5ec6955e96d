"""The server waits for everyone it asked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from poise.clocks.base import Paced
from poise.core.durations import Durations
from poise.core.parts import part
from poise.core.types import Flight, Floats, Sky, Step


@part("clock", "synchronous")
class Synchronous(Paced):
    """Aggregate when every sampled client has answered; staleness is always 0 (E section 4.3.1).

    A round lasts as long as its slowest client needs.

    Args:
        durations: simulated time that each client needs for a piece of work: numbers (one per
            client), a scenario such as ``"F80"``, `Exponential`, `Trace`, or None for one unit each.

    >>> [step.time for step in Synchronous().timeline([1.0, 2.0], aggregations=2)]
    [2.0, 4.0]
    """

    durations: Durations = None

    waits = True

    def advance(self, sky: Sky, started: Sequence[Flight], index: int) -> tuple[Step, Sky]:
        """All that is under way arrives; the slowest sets the time."""
        arrived = (*sky.flights, *started)
        now = max((f.finish for f in arrived), default=sky.now)
        return Step(index, now, arrived), Sky(now)

    def unbiased_weights(self, durations: Durations, importance: Floats) -> Floats:
        """``d_i = p_i``: everyone arrives in every aggregation it was asked for (E, table 4.1)."""
        return np.asarray(importance, dtype=np.float64)

    def identical_weights(self, base: Floats, clients: int) -> Floats:
        """The base weights."""
        return np.asarray(base, dtype=np.float64)
