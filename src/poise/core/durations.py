"""How long each client's local work takes, in simulated time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np

from poise.core.capabilities import PerClient
from poise.core.errors import InvalidOption, require
from poise.core.protocols import Times
from poise.core.types import Floats, Ints


@runtime_checkable
class DurationsPart(Protocol):
    """Durations given as a part: `poise.clocks.Exponential`, `poise.clocks.Trace`."""

    def bind(self, clients: int | None) -> TimesWithLaws:
        """Return the times of this many clients; None only checks the options."""


class TimesWithLaws(Times, Protocol):
    """Times that know their means; a method raises if it has no closed form."""

    def mean(self, clients: int) -> Floats:
        """E[T_i], (N,)."""

    def windows(self, dt: float, clients: int) -> Floats:
        """E[ceil(T_i / dt)], (N,): the windows of length dt that client i needs."""


Durations: TypeAlias = str | Sequence[float] | np.ndarray | DurationsPart | None
"""One number per client, a scenario ``"F<percent>"``, a durations part, or None.

None means one unit of time for every client.
"""

SAME = 1e-9
"""Times that differ by less than this share count as equal: five times 0.2 is 1."""


@dataclass(frozen=True)
class FixedDurations:
    """Client i always takes ``tau[i]``; without ``tau`` every client takes one unit."""

    tau: Floats | None = None  # (N,)

    last = np.inf

    def of(self, clients: Ints, version: int, seed: int, now: float) -> Floats:
        """The time that each of these clients takes."""
        if self.tau is None:
            return np.ones(len(clients))
        return self.tau[clients]

    def mean(self, clients: int) -> Floats:
        """The times themselves."""
        return self.of(np.arange(clients), 0, 0, 0.0)

    def windows(self, dt: float, clients: int) -> Floats:
        """``ceil(tau_i / dt)``; work that ends with a window belongs to it."""
        return np.ceil(self.mean(clients) / dt * (1 - SAME))


@dataclass(frozen=True)
class LateStarts(FixedDurations):
    """Client i cannot start before ``first_start[i]``; then it always takes ``tau[i]``."""

    first_start: Floats = field(default_factory=lambda: np.zeros(0))  # (N,)

    def of(self, clients: Ints, version: int, seed: int, now: float) -> Floats:
        """The time that each client takes; inf before its first start."""
        early = self.first_start[clients] > now * (1 + SAME)
        return np.where(early, np.inf, super().of(clients, version, seed, now))

    def mean(self, clients: int) -> Floats:
        """The times of the work, whenever it starts."""
        return FixedDurations(self.tau).mean(clients)


def scenario(name: str, clients: int) -> Floats:
    """Scenario ``F{X}``: ``tau_i = 1 - i (X/100)/(M - 1)``, client 0 the slowest.

    >>> scenario("F80", 3)
    array([1. , 0.6, 0.2])

    Source: [Fraboni 2023, §4.5].
    """
    match = re.fullmatch(r"F(\d{1,2})", name)
    if match is None:
        raise InvalidOption(
            f"unknown durations {name!r}", "use a scenario F0 … F99, for example 'F80'"
        )
    spread = int(match.group(1)) / 100
    return np.asarray(
        1.0 - np.arange(clients) * (spread / max(clients - 1, 1)), dtype=np.float64
    )


def as_durations(given: Durations, clients: int | None) -> TimesWithLaws:
    """Check durations, and their number if ``clients`` is known; return times."""
    if given is None:
        return FixedDurations()
    if isinstance(given, DurationsPart):
        return given.bind(clients)
    return FixedDurations(client_durations(given, clients))


def durations_for(given: Durations, stay: Sequence[int]) -> Durations:
    """Select the durations of the clients ``stay``, in this order.

    Durations without one value per client stay as they are.

    >>> durations_for([1.0, 2.0, 3.0], [2, 0])
    [3.0, 1.0]
    """
    if isinstance(given, DurationsPart):
        if isinstance(given, PerClient):
            return given.for_clients(stay)
        return given
    if isinstance(given, Sequence | np.ndarray) and not isinstance(given, str):
        return [float(given[client]) for client in stay]
    return given


def client_durations(
    given: str | Sequence[float] | np.ndarray, clients: int | None
) -> Floats:
    """Return one checked duration per client, from numbers or a scenario."""
    if isinstance(given, str):
        return scenario(given, clients or 2)
    try:
        tau = np.asarray(given, dtype=np.float64)
    except (ValueError, TypeError) as error:
        raise InvalidOption(
            f"durations must be numbers: {error}", "give one number per client"
        ) from error
    require(
        tau.ndim == 1 and len(tau) > 0,
        "durations must be a list of numbers, one per client",
    )
    bad_clients = np.flatnonzero(~(np.isfinite(tau) & (tau > 0)))
    if len(bad_clients):
        raise InvalidOption(f"duration of client {bad_clients[0]} must be above 0")
    require(
        clients is None or len(tau) == clients,
        f"{len(tau)} durations for {clients} clients",
        "give one number per client",
    )
    return tau
