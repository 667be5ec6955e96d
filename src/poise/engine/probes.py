"""Reading the probes of a run: a few numbers of every update, taken while it is there."""

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
    """What all probes read of the contributions; one row per update."""
    if not probes or not len(updates):
        return {}
    found: dict[str, Floats] = {}
    for probe in probes:
        for name, values in probe.read(updates, past).items():
            if name in found or len(values) != len(updates):
                read = (
                    f"{type(probe).__name__} read {name!r} {values.shape} of {len(updates)} "
                    "contributions"
                )
                raise IncompatibleParts(
                    f"round {updates.round}: {read}", "one row each, under a name of its own"
                )
            found[name] = values
    return found
