"""What the clocks with durations share: checks, times and the timeline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from poise.core.durations import Durations, TimesWithLaws, as_durations
from poise.core.protocols import Clock
from poise.core.timeline import shares, timeline
from poise.core.types import Floats, Setting, Step


def in_time(clock: Clock, durations: Durations, importance: Floats) -> Floats:
    """``d_i = p_i / f_i``, f_i the long-run share of aggregations with client i, counted on the timeline."""
    used: Any = clock if durations is None else replace(clock, durations=durations)  # type: ignore[type-var]
    used.times(len(importance)).mean(len(importance))  # refuses times that have no law
    return np.asarray(importance / shares(used, len(importance)))


class Paced:
    """A clock whose clients need ``durations`` for their work."""

    durations: Durations

    def __post_init__(self) -> None:
        as_durations(self.durations, None)

    def fit(self, setting: Setting) -> None:
        """One duration per client."""
        as_durations(self.durations, setting.clients)

    def times(self, clients: int) -> TimesWithLaws:
        """How long each of this many clients needs."""
        return as_durations(self.durations, clients)

    def timeline(
        self, durations: Durations = None, *, time: float | None = None,
        aggregations: int | None = None, seed: int = 0, clients: int | None = None,
    ) -> Iterator[Step]:  # fmt: skip
        """The schedule of a federation in which every client starts again as soon as the clock lets it."""
        return timeline(self, durations, clients, time, aggregations, seed)
