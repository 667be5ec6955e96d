"""`Buffered`: the server aggregates when c clients have answered."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from poise.clocks.base import Paced, counted_weights
from poise.core.durations import Durations
from poise.core.errors import IncompatibleParts, require
from poise.core.parts import part
from poise.core.timeline import in_arrival_order
from poise.core.traits import ClockTraits
from poise.core.types import Assignment, Floats, InFlight, Setting, Step


@part("clock", "buffered")
class Buffered(Paced):
    """FedBuff: aggregate when c clients have answered; they then start again.

    Simultaneous answers count in order of client number. If fewer than c clients are at
    work, the aggregation takes all of them. c = M with equal times is synchronous.

    Args:
        c: answers per aggregation, at least 1.
        durations: simulated time of a piece of work: numbers (one per client), a
            scenario such as ``"F80"``, `Exponential`, `Trace`, or None for one unit
            each.

    Source: [Fraboni 2023, §4.5], [Nguyen 2021].

    >>> [(s.time, s.clients.tolist()) for s in Buffered(2).timeline([1.0, 0.25, 0.5], time=1.0)]
    [(0.5, [1, 2]), (1.0, [0, 1])]
    """

    c: int
    durations: Durations = None

    waits = False
    traits = ClockTraits(
        balance_rule="d_i = p_i / f_i, f_i the share of aggregations with client i"
    )

    def __post_init__(self) -> None:
        require(self.c >= 1, f"Buffered: c must be at least 1, not {self.c}", where="c")
        super().__post_init__()

    def fit(self, setting: Setting) -> None:
        """Refuse buffers that are larger than the federation."""
        if self.c > setting.clients:
            raise IncompatibleParts(
                (
                    f"Buffered: c = {self.c} answers per aggregation, but the federation has "
                    f"{setting.clients} clients"
                ),
                f"choose c <= {setting.clients}",
                where=("c",),
            )
        super().fit(setting)

    def advance(
        self, in_flight: InFlight, started: Sequence[Assignment], index: int
    ) -> tuple[Step, InFlight]:
        """Aggregate the first c answers; the last of them sets the time."""
        assignments = in_arrival_order((*in_flight.assignments, *started))
        arrived = assignments[: self.c]
        rest = assignments[self.c :]
        now = max((a.finish for a in arrived), default=in_flight.now)
        now = max(now, in_flight.now)
        by_client = tuple(sorted(arrived, key=lambda a: a.client))
        return Step(index, now, by_client), InFlight(now, tuple(rest))

    def unbiased_weights(self, durations: Durations, importance: Floats) -> Floats:
        """``d_i = p_i / f_i``, f_i the share of aggregations with client i."""
        p = np.asarray(importance, dtype=np.float64)
        return counted_weights(self, durations, importance=p)

    def identical_weights(self, base: Floats, clients: int) -> Floats:
        """Return ``1/c`` for every client."""
        return np.full(len(base), 1 / self.c)
