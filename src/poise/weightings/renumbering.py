"""`inner_for`: the inner weighting of another weighting, after clients left."""

from __future__ import annotations

from collections.abc import Sequence

from poise.core.capabilities import PerClient
from poise.core.protocols import Weighting


def inner_for(weighting: Weighting, stay: Sequence[int]) -> Weighting:
    """Return a weighting for the clients that stay; itself without client options."""
    if isinstance(weighting, PerClient):
        return weighting.for_clients(stay)
    return weighting
