"""`FixedWindow`: the server aggregates at fixed times."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from poise.clocks.base import Paced
from poise.clocks.window_ends import WindowEnds, window_ends
from poise.core.durations import (
    SAME,
    Durations,
    FixedDurations,
    LateStarts,
    TimesWithLaws,
    as_durations,
)
from poise.core.errors import InvalidOption, require
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
    """FedFix: the server aggregates at the end of every window, such as at ``k dt``.

    An answer exactly at the end belongs to the window that ends there. A window without
    answers is an aggregation that keeps the model. A client that answered waits for the
    end of the window and starts again.

    Args:
        dt: length of a window, in simulated time; or a list of lengths, of which the
            last goes on.
        durations: simulated time of a piece of work: numbers (one per client), a
            scenario such as ``"F80"``, `Exponential`, `Trace`, or None for one unit
            each.
        stagger: let clients that need k windows take turns: their j-th client, counted
            from 0, first starts in window j mod k. They then answer in every window,
            not all together in every k-th one, and the weights of a window sum to 1
            if all clients have the same importance and the turns are equally large.
            The weights of the long run stay. Needs given durations, and windows of one
            length.
        growth: factor from one window to the next: window n has length
            ``dt * growth**n``, at most ``longest``.
        longest: the length at which windows no longer grow. From the slowest client's
            time on, the clock is then synchronous.

    Source: [Fraboni 2023, §4.4.4]; the turns and the rule of growth are ours.

    >>> [(s.time, s.clients.tolist()) for s in FixedWindow(0.5).timeline([1.0, 0.4], time=1.0)]
    [(0.5, [1]), (1.0, [0, 1])]
    >>> turns = FixedWindow(0.5, [1.0, 1.0], stagger=True)
    >>> [(s.time, s.clients.tolist()) for s in turns.timeline(time=2.0)]
    [(0.5, []), (1.0, [0]), (1.5, [1]), (2.0, [0])]
    >>> late = FixedWindow(0.5, [1.0, 0.4], growth=1.5, longest=1.0)
    >>> [(s.time, s.clients.tolist()) for s in late.timeline(aggregations=4)]
    [(0.5, [1]), (1.25, [0, 1]), (2.25, [0, 1]), (3.25, [0, 1])]
    """

    dt: float | Sequence[float]
    durations: Durations = None
    stagger: bool = False
    growth: float = 1.0
    longest: float | None = None

    waits = False

    def __post_init__(self) -> None:
        windows = window_ends(self.dt, self.growth, self.longest)
        super().__post_init__()
        require(
            windows.constant is not None or not self.stagger,
            "FixedWindow: stagger needs windows of one length",
            "leave out stagger, or give one dt without growth",
            where="stagger",
        )
        fixed = isinstance(as_durations(self.durations, None), FixedDurations)
        require(
            fixed or not self.stagger,
            "FixedWindow: stagger needs durations that are numbers or a scenario",
            "leave out stagger, or give one number per client",
            where="stagger",
        )

    @cached_property
    def windows(self) -> WindowEnds:
        """When the windows end."""
        return window_ends(self.dt, self.growth, self.longest)

    def times(self, clients: int) -> TimesWithLaws:
        """Return the work times; staggered clients cannot start before their turn."""
        times = super().times(clients)
        dt = self.windows.constant
        if not self.stagger or dt is None:
            return times
        turns = turns_of(times.windows(dt, clients))
        return LateStarts(times.mean(clients), first_start=turns * dt)

    @property
    def traits(self) -> ClockTraits:
        """Declare the schedule, the window and the rule of the unbiased weights."""
        dt = self.windows.constant
        if dt is None:
            return ClockTraits()
        return ClockTraits(
            schedule="fixed-window",
            window=dt,
            balance_rule="d_i = ⌈τ_i/Δt⌉ p_i [Fraboni 2023, eq. 4.40]",
        )

    def advance(
        self, in_flight: InFlight, started: Sequence[Assignment], index: int
    ) -> tuple[Step, InFlight]:
        """Aggregate at the end of the next window all work that is finished by then."""
        now = self.windows.end(index)
        assignments = (*in_flight.assignments, *started)
        by_now = now * (1 + SAME)
        arrived = sorted(
            (a for a in assignments if a.finish <= by_now), key=lambda a: a.client
        )
        rest = tuple(a for a in assignments if a.finish > by_now)
        return Step(index, now, tuple(arrived)), InFlight(now, rest)

    def unbiased_weights(self, durations: Durations, importance: Floats) -> Floats:
        """``d_i = ceil(tau_i / dt) p_i``, or its mean for random times.

        Raises if the windows change their length: no constant weights are unbiased.

        Source: [Fraboni 2023, eq. 4.40].
        """
        dt = self.windows.constant
        if dt is None:
            raise InvalidOption(
                "FixedWindow: no constant weights are unbiased while windows change "
                "their length",
                "use TimeBased(times='elapsed')",
                where=("dt",),
            )
        p = np.asarray(importance, dtype=np.float64)
        if durations is None:
            durations = self.durations
        times = as_durations(durations, len(p))
        return np.asarray(times.windows(dt, len(p)) * p)

    def identical_weights(self, base: Floats, clients: int) -> Floats:
        """Return the base weights."""
        return np.asarray(base, dtype=np.float64)
