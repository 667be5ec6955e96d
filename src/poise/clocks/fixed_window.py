"""`FixedWindow`: the server aggregates at fixed times."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from poise.clocks.base import Paced
from poise.core.durations import SAME, Durations, as_durations
from poise.core.errors import require
from poise.core.parts import part
from poise.core.traits import ClockTraits
from poise.core.types import Assignment, Floats, InFlight, Step


@part("clock", "fixed-window")
class FixedWindow(Paced):
    """FedFix: window k ends at ``k dt``; the server then aggregates its answers.

    An answer exactly at the end belongs to the window that ends there. A window without
    answers is an aggregation that keeps the model. A client that answered waits for the
    end of the window and starts again.

    Args:
        dt: length of a window, in simulated time.
        durations: simulated time of a piece of work: numbers (one per client), a
            scenario such as ``"F80"``, `Exponential`, `Trace`, or None for one unit
            each.

    Source: [Fraboni 2023, §4.4.4].

    >>> [(s.time, s.clients.tolist()) for s in FixedWindow(0.5).timeline([1.0, 0.4], time=1.0)]
    [(0.5, [1]), (1.0, [0, 1])]
    """

    dt: float
    durations: Durations = None

    waits = False

    def __post_init__(self) -> None:
        require(
            0 < self.dt < np.inf,
            f"FixedWindow: dt must be above 0, not {self.dt}",
            where="dt",
        )
        super().__post_init__()

    @property
    def traits(self) -> ClockTraits:
        """Declare the schedule, the window and the rule of the unbiased weights."""
        return ClockTraits(
            schedule="fixed-window",
            window=self.dt,
            balance_rule="d_i = ⌈τ_i/Δt⌉ p_i [Fraboni 2023, eq. 4.40]",
        )

    def advance(
        self, in_flight: InFlight, started: Sequence[Assignment], index: int
    ) -> tuple[Step, InFlight]:
        """Aggregate at the end of the next window all work that is finished by then."""
        now = (index + 1) * self.dt
        assignments = (*in_flight.assignments, *started)
        by_now = now * (1 + SAME)
        arrived = sorted(
            (a for a in assignments if a.finish <= by_now), key=lambda a: a.client
        )
        rest = tuple(a for a in assignments if a.finish > by_now)
        return Step(index, now, tuple(arrived)), InFlight(now, rest)

    def unbiased_weights(self, durations: Durations, importance: Floats) -> Floats:
        """``d_i = ceil(tau_i / dt) p_i``, or its mean for random times.

        Source: [Fraboni 2023, eq. 4.40].
        """
        p = np.asarray(importance, dtype=np.float64)
        if durations is None:
            durations = self.durations
        times = as_durations(durations, len(p))
        return np.asarray(times.windows(self.dt, len(p)) * p)

    def identical_weights(self, base: Floats, clients: int) -> Floats:
        """Return the base weights."""
        return np.asarray(base, dtype=np.float64)
