"""The server aggregates at fixed times, with whoever has answered."""

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
    """FedFix: window k ends at ``k dt``, and all that arrived in it is aggregated then.

    An answer exactly at the end belongs to the window that ends there. A window without answers is
    an aggregation that keeps the model. Whoever answered waits for the end of the window and starts
    again.

    Args:
        dt: length of a window, in simulated time.
        durations: simulated time of a piece of work: numbers (one per client), a scenario such as
            ``"F80"``, `Exponential`, `Trace`, or None for one unit each.

    Source: E section 4.4.4.

    >>> [(s.time, s.clients.tolist()) for s in FixedWindow(0.5).timeline([1.0, 0.4], time=1.0)]
    [(0.5, [1]), (1.0, [0, 1])]
    """

    dt: float
    durations: Durations = None

    waits = False

    def __post_init__(self) -> None:
        require(0 < self.dt < np.inf, f"FixedWindow: dt must be above 0, not {self.dt}", where="dt")
        super().__post_init__()

    @property
    def traits(self) -> ClockTraits:
        """Whoever has answered is heard at the end of a window."""
        return ClockTraits(
            schedule="fixed-window", window=self.dt, balance_rule="d_i = ⌈τ_i/Δt⌉ p_i (E eq. 4.40)"
        )

    def advance(
        self, in_flight: InFlight, started: Sequence[Assignment], index: int
    ) -> tuple[Step, InFlight]:
        """The end of the next window, with all who have finished by then."""
        now = (index + 1) * self.dt
        assignments = (*in_flight.assignments, *started)
        by_now = now * (1 + SAME)
        arrived = sorted((f for f in assignments if f.finish <= by_now), key=lambda f: f.client)
        return Step(index, now, tuple(arrived)), InFlight(
            now, tuple(f for f in assignments if f.finish > by_now)
        )

    def unbiased_weights(self, durations: Durations, importance: Floats) -> Floats:
        """``d_i = ceil(tau_i / dt) p_i``; the mean of it where times are random (E eq. 4.40)."""
        p = np.asarray(importance, dtype=np.float64)
        times = as_durations(self.durations if durations is None else durations, len(p))
        return np.asarray(times.windows(self.dt, len(p)) * p)

    def identical_weights(self, base: Floats, clients: int) -> Floats:
        """The base weights."""
        return np.asarray(base, dtype=np.float64)
