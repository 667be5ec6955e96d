"""What the clocks with durations share: checks, times and the timeline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np

from poise.core.durations import Durations, TimesWithLaws, as_durations, durations_for
from poise.core.errors import errors_at
from poise.core.parts import with_options
from poise.core.protocols import Clock
from poise.core.timeline import shares, timeline
from poise.core.types import Floats, Setting, Step


def in_time(clock: Clock, durations: Durations, importance: Floats) -> Floats:
    """``d_i = p_i / f_i``, f_i the long-run share of aggregations with client i, counted on the
    timeline.
    """
    used: Any = clock if durations is None else with_options(clock, durations=durations)
    used.times(len(importance)).mean(len(importance))  # refuses times that have no law
    return np.asarray(importance / shares(used, len(importance)))


class Paced:
    """A clock whose clients need ``durations`` for their work."""

    durations: Durations

    def __post_init__(self) -> None:
        with errors_at("durations"):
            as_durations(self.durations, None)

    def fit(self, setting: Setting) -> None:
        """One duration per client."""
        with errors_at("durations"):
            as_durations(self.durations, setting.clients)

    def for_clients(self, stay: Sequence[int]) -> Self:
        """The durations of the clients that stay."""
        return with_options(self, durations=durations_for(self.durations, stay))

    def times(self, clients: int) -> TimesWithLaws:
        """How long each of this many clients needs."""
        return as_durations(self.durations, clients)

    def timeline(
        self: Clock,
        durations: Durations = None,
        *,
        time: float | None = None,
        aggregations: int | None = None,
        seed: int = 0,
        clients: int | None = None,
    ) -> Iterator[Step]:
        """The schedule of a federation in which every client starts again as soon as the clock lets
        it.
        """
        return timeline(
            self, durations, clients=clients, time=time, aggregations=aggregations, seed=seed
        )
