"""Reading the gauges of a run: a few numbers of every update, taken while it is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from poise.core.arrived import Arrived
from poise.core.errors import IncompatibleParts
from poise.core.history import History
from poise.core.protocols import Gauge
from poise.core.threads import Spread, in_turn
from poise.core.types import Flight, Floats, Updates
from poise.core.vectors import Vector


def readings(
    gauges: Sequence[Gauge], round: int, flights: Sequence[Flight], updates: Updates, omega: Floats, direction: Vector,
    past: History, models: Mapping[int, Vector], spread: Spread = in_turn,
) -> dict[str, Floats]:  # fmt: skip
    """What all gauges read of the contributions; one row per flight."""
    if not gauges or not flights:
        return {}
    arrived = Arrived(
        round, np.array([f.client for f in flights], dtype=np.int64),
        np.array([f.version for f in flights], dtype=np.int64), updates.deltas[:, : len(direction)], updates.norms,
        omega, direction, updates.loss_before, updates.loss_after, models, spread,
    )  # fmt: skip
    found: dict[str, Floats] = {}
    for gauge in gauges:
        for name, values in gauge.read(arrived, past).items():
            if name in found or len(values) != len(flights):
                read = f"{type(gauge).__name__} read {name!r} {values.shape} of {len(flights)} contributions"
                raise IncompatibleParts(f"round {round}: {read}", "one row each, under a name of its own")
            found[name] = values
    return found
