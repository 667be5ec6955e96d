"""Run the probes of a round on its updates."""

from __future__ import annotations

from collections.abc import Sequence

from poise.core.errors import IncompatibleParts
from poise.core.history import History
from poise.core.protocols import Probe
from poise.core.round_updates import RoundUpdates
from poise.core.types import Floats


def measurements(
    probes: Sequence[Probe], updates: RoundUpdates, past: History
) -> dict[str, Floats]:
    """Return the measurements of all probes by name, one row per update."""
    if not probes or not len(updates):
        return {}
    measured: dict[str, Floats] = {}
    for probe in probes:
        for name, values in probe.read(updates, past).items():
            if name in measured or len(values) != len(updates):
                raise IncompatibleParts(
                    f"round {updates.round}: {type(probe).__name__} returned {name!r} of shape "
                    f"{values.shape} for {len(updates)} contributions",
                    "return one row per contribution, under a name that no other probe uses",
                )
            measured[name] = values
    return measured
