"""How long each client needs for a piece of work, in simulated time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from poise.core.errors import InvalidOption, require
from poise.core.types import Floats, Ints

Durations: TypeAlias = str | Sequence[float] | np.ndarray | None
"""Numbers (one per client), a scenario ``"F<percent>"``, or None for one unit each."""


@dataclass(frozen=True)
class FixedDurations:
    """Client i always needs ``tau[i]``; without ``tau`` everyone needs one unit."""

    tau: Floats | None = None  # (N,)

    def of(self, clients: Ints, version: int, seed: int) -> Floats:
        """The time that each of these clients needs."""
        if self.tau is None:
            return np.ones(len(clients))
        return self.tau[clients]


def scenario(name: str, clients: int) -> Floats:
    """Scenario ``F{X}``: ``tau_i = 1 - i (X/100)/(M - 1)``, client 0 the slowest (E section 4.5).

    >>> scenario("F80", 3)
    array([1. , 0.6, 0.2])
    """
    match = re.fullmatch(r"F(\d{1,2})", name)
    if match is None:
        raise InvalidOption(f"unknown durations {name!r}", "a scenario is F0 … F99, for example 'F80'")
    spread = int(match.group(1)) / 100
    return np.asarray(1.0 - np.arange(clients) * (spread / max(clients - 1, 1)), dtype=np.float64)


def as_durations(given: Durations, clients: int | None) -> FixedDurations:
    """Check durations, against the number of clients where it is known."""
    if given is None:
        return FixedDurations()
    if isinstance(given, str):
        return FixedDurations(scenario(given, clients or 2))
    try:
        tau = np.asarray(given, dtype=np.float64)
    except (ValueError, TypeError) as error:
        raise InvalidOption(f"durations must be numbers: {error}", "give one per client") from error
    require(tau.ndim == 1 and len(tau) > 0, "durations must be a list of numbers, one per client")
    bad = np.flatnonzero(~(np.isfinite(tau) & (tau > 0)))
    require(len(bad) == 0, f"duration of client {bad[0] if len(bad) else ''} must be above 0")
    require(
        clients is None or len(tau) == clients, f"{len(tau)} durations for {clients} clients", "give one per client"
    )
    return FixedDurations(tau)
