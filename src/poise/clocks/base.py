"""`Paced`, the base of clocks with durations: checks, times and the timeline."""

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


def counted_weights(clock: Clock, durations: Durations, importance: Floats) -> Floats:
    """``d_i = p_i / f_i``, f_i the share of aggregations with client i."""
    paced: Any = clock
    if durations is not None:
        paced = with_options(clock, durations=durations)
    clients = len(importance)
    # raises for durations without a mean, such as a trace
    paced.times(clients).mean(clients)
    return np.asarray(importance / shares(paced, clients))


class Paced:
    """A clock whose clients need ``durations`` for their work."""

    durations: Durations

    def __post_init__(self) -> None:
        with errors_at("durations"):
            as_durations(self.durations, None)

    def fit(self, setting: Setting) -> None:
        """Refuse durations that do not give one time per client."""
        with errors_at("durations"):
            as_durations(self.durations, setting.clients)

    def for_clients(self, stay: Sequence[int]) -> Self:
        """Return this clock with the durations of the clients that stay."""
        return with_options(self, durations=durations_for(self.durations, stay))

    def times(self, clients: int) -> TimesWithLaws:
        """Return the work times of this many clients."""
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
        """Yield the schedule if clients restart as soon as the clock allows."""
        return timeline(
            self,
            durations,
            clients=clients,
            time=time,
            aggregations=aggregations,
            seed=seed,
        )
