"""`Exponential`: random durations with an exponential law and one mean per client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from poise.core.durations import client_durations
from poise.core.parts import part
from poise.core.rng import keys, words
from poise.core.types import Floats, Ints


@part("durations", "exponential")
class Exponential:
    """Client i needs an exponential time of mean ``tau[i]``, drawn for each work.

    A time depends on (seed, version, client) alone.

    Args:
        tau: mean times, one per client, or a scenario such as ``"F80"``.

    Source: [Fraboni 2023, §4.2.2].

    >>> Exponential([1.0, 2.0]).bind(2).mean(2)
    array([1., 2.])
    """

    tau: str | Sequence[float]

    def __post_init__(self) -> None:
        client_durations(self.tau, None)

    def __len__(self) -> int:
        """Return the number of means; 0 for a scenario, which fits any federation."""
        if isinstance(self.tau, str):
            return 0
        return len(self.tau)

    def for_clients(self, stay: Sequence[int]) -> Self:
        """Return these durations for the clients that stay."""
        if isinstance(self.tau, str):
            return self
        return replace(self, tau=tuple(self.tau[c] for c in stay))

    def bind(self, clients: int | None) -> ExponentialTimes:
        """Return the times of this many clients."""
        return ExponentialTimes(client_durations(self.tau, clients))


@dataclass(frozen=True)
class ExponentialTimes:
    """Exponential times with these means."""

    tau: Floats

    last = np.inf

    def of(self, clients: Ints, version: int, seed: int, now: float) -> Floats:
        """Return -tau log(u), u uniform in (0, 1] from (seed, version, client)."""
        bits = words(keys(seed, "duration", version, clients), 1)[:, 0] >> np.uint64(11)
        return np.asarray(
            -self.tau[clients] * np.log((bits + np.uint64(1)) / 2.0**53) + 1e-300
        )

    def mean(self, clients: int) -> Floats:
        """Return the mean times."""
        return self.tau

    def windows(self, dt: float, clients: int) -> Floats:
        """Return E[ceil(T/dt)] = 1/(1 - e^(-dt/tau))."""
        return np.asarray(-1 / np.expm1(-dt / self.tau))
