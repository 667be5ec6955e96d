"""`FixedWindow`: the server aggregates at fixed times."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from poise.clocks.base import Paced
from poise.core.durations import (
    SAME,
    Durations,
    FixedDurations,
    LateStarts,
    TimesWithLaws,
    as_durations,
)
from poise.core.errors import require
from poise.core.parts import part
from poise.core.traits import ClockTraits
from poise.core.types import Assignment, Floats, InFlight, Step


def turns_of(windows: Floats) -> Floats:
    """Return j mod k for the j-th of the clients that need k windows.

    >>> turns_of(np.array([2.0, 1.0, 2.0, 2.0, 1.0]))
    array([0., 0., 1., 0., 0.])
    """
    turns = np.zeros(len(windows))
    for needed in np.unique(windows):
        clients = np.flatnonzero(windows == needed)
        turns[clients] = np.arange(len(clients)) % needed
    return turns


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
        stagger: let clients that need k windows take turns: their j-th client, counted
            from 0, first starts in window j mod k. They then answer in every window,
            not all together in every k-th one, and the weights of a window sum to 1
            if all clients have the same importance and the turns are equally large.
            The weights of the long run stay. Needs given durations.

    Source: [Fraboni 2023, §4.4.4]; the turns are ours.

    >>> [(s.time, s.clients.tolist()) for s in FixedWindow(0.5).timeline([1.0, 0.4], time=1.0)]
    [(0.5, [1]), (1.0, [0, 1])]
    >>> turns = FixedWindow(0.5, [1.0, 1.0], stagger=True)
    >>> [(s.time, s.clients.tolist()) for s in turns.timeline(time=2.0)]
    [(0.5, []), (1.0, [0]), (1.5, [1]), (2.0, [0])]
    """

    dt: float
    durations: Durations = None
    stagger: bool = False

    waits = False

    def __post_init__(self) -> None:
        require(
            0 < self.dt < np.inf,
            f"FixedWindow: dt must be above 0, not {self.dt}",
            where="dt",
        )
        super().__post_init__()
        fixed = isinstance(as_durations(self.durations, None), FixedDurations)
        require(
            fixed or not self.stagger,
            "FixedWindow: stagger needs durations that are numbers or a scenario",
            "leave out stagger, or give one number per client",
            where="stagger",
        )

    def times(self, clients: int) -> TimesWithLaws:
        """Return the work times; staggered clients cannot start before their turn."""
        times = super().times(clients)
        if not self.stagger:
            return times
        turns = turns_of(times.windows(self.dt, clients))
        return LateStarts(times.mean(clients), first_start=turns * self.dt)

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
