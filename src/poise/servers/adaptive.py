"""The adaptive server optimisers `Adam`, `Yogi` and `Adagrad` [Reddi 2021].

    m <- beta1 m + (1 - beta1) D,   v <- second(v, D^2),   theta <- theta + lr m / (sqrt(v) + tau)

They differ in ``second``. There is no bias correction, and ``v`` starts at ``tau^2``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from poise.core.errors import require
from poise.core.parts import part
from poise.core.protocols import ServerState
from poise.core.traits import ServerTraits
from poise.core.types import Setting
from poise.core.vectors import Vector


@dataclass(frozen=True)
class _Adaptive:
    """Options and step of the adaptive servers; each of them defines ``second``."""

    lr: float = 0.01
    beta1: float = 0.9

    tau = 1e-3  # each server declares it as its last option

    def __post_init__(self) -> None:
        name = type(self).__name__
        require(
            0 < self.lr < float("inf"),
            f"{name}: lr must be above 0, not {self.lr}",
            where="lr",
        )
        for option, value in vars(self).items():
            if not option.startswith("beta"):
                continue
            require(
                0 <= value < 1,
                f"{name}: {option} must be in [0, 1), not {value}",
                where=option,
            )
        require(
            0 < self.tau < float("inf"),
            f"{name}: tau must be above 0, not {self.tau}",
            where="tau",
        )

    @property
    def traits(self) -> ServerTraits:
        """Declare the rate; the moments depend on earlier directions."""
        return ServerTraits(rate=self.lr)

    def fit(self, setting: Setting) -> None:
        """Accept every setting."""

    def init(self, theta: Vector) -> ServerState:
        """Return the first moment 0 and the second moment tau^2."""
        return {
            "first": torch.zeros_like(theta),
            "second": torch.full_like(theta, self.tau**2),
        }

    def second(self, v: Vector, square: Vector) -> Vector:
        """Return the second moment after a direction with this square."""
        return v

    def apply(
        self, theta: Vector, direction: Vector, state: ServerState
    ) -> tuple[Vector, ServerState]:
        """Make one adaptive step."""
        first = self.beta1 * state["first"] + (1 - self.beta1) * direction
        second = self.second(state["second"], direction.square())
        moved = theta + self.lr * first / (second.sqrt() + self.tau)
        return moved, {"first": first, "second": second}


@part("server", "adam")
class Adam(_Adaptive):
    """FedAdam: ``v <- beta2 v + (1 - beta2) D^2``.

    Args:
        lr: server learning rate.
        beta1: decay of the first moment m.
        beta2: decay of the second moment v.
        tau: added to sqrt(v); a smaller tau makes the step more adaptive.

    Source: [Exp-α 2023, §4], [Reddi 2021]; no bias correction.

    >>> theta = torch.zeros(1)
    >>> server = Adam(lr=1.0, beta1=0.0, beta2=0.0, tau=1.0)
    >>> server.apply(theta, torch.tensor([3.0]), server.init(theta))[0]
    tensor([0.7500])
    """

    beta2: float = 0.99
    tau: float = 1e-3

    traits = _Adaptive.traits

    def second(self, v: Vector, square: Vector) -> Vector:
        """Return a moving average of the squares."""
        return self.beta2 * v + (1 - self.beta2) * square


@part("server", "yogi")
class Yogi(_Adaptive):
    """FedYogi: ``v <- v - (1 - beta2) D^2 sign(v - D^2)``; v changes slowly while D is small.

    Args:
        lr: server learning rate.
        beta1: decay of the first moment m.
        beta2: how slowly the second moment v changes.
        tau: added to sqrt(v); a smaller tau makes the step more adaptive.

    Source: [Exp-α 2023, §4], [Reddi 2021].

    >>> theta = torch.zeros(1)
    >>> server = Yogi(lr=1.0, beta1=0.0, beta2=0.0, tau=1.0)
    >>> server.apply(theta, torch.tensor([0.5]), server.init(theta))[1]["second"]
    tensor([0.7500])
    """

    beta2: float = 0.99
    tau: float = 1e-3

    traits = _Adaptive.traits

    def second(self, v: Vector, square: Vector) -> Vector:
        """Move v towards the square, by a fixed share of the square."""
        return v - (1 - self.beta2) * square * (v - square).sign()


@part("server", "adagrad")
class Adagrad(_Adaptive):
    """FedAdagrad: ``v <- v + D^2``; steps shrink with the sum of squared directions.

    Args:
        lr: server learning rate.
        beta1: decay of the first moment m; 0 is plain Adagrad.
        tau: added to sqrt(v); a smaller tau makes the step more adaptive.

    Source: [Exp-α 2023, §4], [Reddi 2021].

    >>> theta = torch.zeros(1)
    >>> server = Adagrad(lr=1.0, tau=1.0)
    >>> server.apply(theta, torch.tensor([2.0]), server.init(theta))[1]["second"]
    tensor([5.])
    """

    beta1: float = 0.0
    tau: float = 1e-3

    traits = _Adaptive.traits

    def second(self, v: Vector, square: Vector) -> Vector:
        """Return the sum of the squares."""
        return v + square
