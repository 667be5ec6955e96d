"""What the clocks with durations share: checks, times and the timeline."""

from __future__ import annotations

from collections.abc import Iterator

from poise.core.durations import Durations, TimesWithLaws, as_durations
from poise.core.timeline import timeline
from poise.core.types import Setting, Step


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
