"""Weightings inside weightings, when clients leave."""

from __future__ import annotations

from collections.abc import Sequence

from poise.core.capabilities import PerClient
from poise.core.protocols import Weighting


def inner_for(weighting: Weighting, stay: Sequence[int]) -> Weighting:
    """A weighting for the clients that stay; itself where it holds nothing client by client."""
    return weighting.for_clients(stay) if isinstance(weighting, PerClient) else weighting
