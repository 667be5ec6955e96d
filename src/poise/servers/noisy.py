"""Noise on what the server is about to apply."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite
from typing import Any

import torch

from poise.core.errors import require
from poise.core.parts import is_part, part
from poise.core.protocols import ServerState
from poise.core.rng import address, torch_generator
from poise.core.traits import ServerTraits, traits_of
from poise.core.types import Setting
from poise.core.vectors import Vector
from poise.servers.add import Add

DRAWN = "drawn"
"""The entry of the state that counts the rounds: it names the next draw."""


@part("server", "noisy")
class Noisy:
    """``D <- D + N(0, sigma^2 I)``, then another server applies it; with `Clipped` weights this is
    DP-FedAvg.

    The noise of round n is the stream (seed, n), so a run that is taken up again draws the same; in
    a run, ``seed`` is combined with the run's own, so that runs and branches of different seeds
    share no noise.

    Args:
        sigma: standard deviation of the noise, in units of the model; 0 is the other server by
            itself.
        of: the server that applies the noisy direction.
        seed: names the noise.

    Source: McMahan et al. 2018, Algorithm 1; E section 5.5.1 (DP).

    >>> theta = torch.zeros(2)
    >>> server = Noisy(sigma=0.0)
    >>> server.apply(theta, torch.ones(2), server.init(theta))
    (tensor([1., 1.]), {'drawn': tensor([1.])})
    """

    sigma: float
    of: Any = Add()
    seed: int = 0

    def __post_init__(self) -> None:
        require(
            self.sigma >= 0 and isfinite(self.sigma),
            f"Noisy: sigma must be 0 or more, not {self.sigma}",
            where="sigma",
        )
        fits = is_part(self.of) and self.of.slot == "server" and not isinstance(self.of, Noisy)
        require(
            fits, f"Noisy: {self.of!r} is not a server to apply the noisy direction", where="of"
        )

    @property
    def traits(self) -> ServerTraits:
        """Those of the other server, with noise."""
        return replace(traits_of(self.of, ServerTraits), noise=self.sigma)

    @property
    def lr(self) -> float:
        """That of the other server."""
        return float(self.of.lr)

    def seeded(self, seed: int) -> Noisy:
        """The same server inside a run of this seed."""
        return replace(self, seed=address(seed, "server noise", self.seed) % 2**63)

    def fit(self, setting: Setting) -> None:
        """The other server must fit."""
        self.of.fit(setting)

    def init(self, theta: Vector) -> ServerState:
        """The other server's state, and nothing drawn so far."""
        return {**self.of.init(theta), DRAWN: theta.new_zeros(1)}

    def apply(
        self, theta: Vector, direction: Vector, state: ServerState
    ) -> tuple[Vector, ServerState]:
        """Draw, add, and let the other server do its step."""
        n = int(state[DRAWN])
        inner = {name: value for name, value in state.items() if name != DRAWN}
        noisy = direction if self.sigma == 0 else direction + self._noise(n, direction)
        moved, after = self.of.apply(theta, noisy, inner)
        return moved, {**after, DRAWN: state[DRAWN] + 1}

    def _noise(self, n: int, like: Vector) -> Vector:
        draw = torch.randn(
            len(like), generator=torch_generator(self.seed, "noise", n), dtype=torch.float64
        )
        return (self.sigma * draw).to(like)
