"""`Noisy`: Gaussian noise on the direction that another server applies."""

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
"""The entry of the state that counts the draws and thereby names the next one."""


@part("server", "noisy")
class Noisy:
    """``D <- D + N(0, sigma^2 I)``, then the server ``of`` applies D.

    With `Clipped` weights this is DP-FedAvg. The noise of round n comes from the stream
    (seed, n), so a resumed run draws the same noise. A run combines ``seed`` with its
    own seed, so runs and branches of different seeds share no noise.

    Args:
        sigma: standard deviation of the noise, in units of the model; 0 adds no noise.
        of: the server that applies the noisy direction.
        seed: the seed of the noise.

    Source: [McMahan 2018, Alg. 1]; [Fraboni 2023, §5.5.1] (DP).

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
        is_server = is_part(self.of) and self.of.slot == "server"
        require(
            is_server and not isinstance(self.of, Noisy),
            f"Noisy: {self.of!r} is not a server to apply the noisy direction",
            "choose another server than Noisy, such as Add()",
            where="of",
        )

    @property
    def traits(self) -> ServerTraits:
        """Return the traits of the inner server, with the noise."""
        return replace(traits_of(self.of, ServerTraits), noise=self.sigma)

    @property
    def lr(self) -> float:
        """The learning rate of the inner server."""
        return float(self.of.lr)

    def seeded(self, seed: int) -> Noisy:
        """Return the same server for a run with this seed."""
        return replace(self, seed=address(seed, "server noise", self.seed) % 2**63)

    def fit(self, setting: Setting) -> None:
        """Refuse settings that the inner server refuses."""
        self.of.fit(setting)

    def init(self, theta: Vector) -> ServerState:
        """Return the state of the inner server, with no draw so far."""
        return {**self.of.init(theta), DRAWN: theta.new_zeros(1)}

    def apply(
        self, theta: Vector, direction: Vector, state: ServerState
    ) -> tuple[Vector, ServerState]:
        """Add noise to the direction and let the inner server apply it."""
        n = int(state[DRAWN])
        inner_state = {name: value for name, value in state.items() if name != DRAWN}
        if self.sigma > 0:
            direction = direction + self._noise(n, direction)
        moved, new_inner_state = self.of.apply(theta, direction, state=inner_state)
        return moved, {**new_inner_state, DRAWN: state[DRAWN] + 1}

    def _noise(self, n: int, like: Vector) -> Vector:
        stream = torch_generator(self.seed, "noise", n)
        draw = torch.randn(len(like), generator=stream, dtype=torch.float64)
        return (self.sigma * draw).to(like)
