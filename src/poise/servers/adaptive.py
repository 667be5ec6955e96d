"""Adaptive server optimisers (Reddi et al. 2021), which differ in one line.

    m <- beta1 m + (1 - beta1) D,   v <- second(v, D^2),   theta <- theta + lr m / (sqrt(v) + tau)

No bias correction; ``v`` starts at ``tau^2``.
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
    """What the three share; ``second`` tells them apart."""

    lr: float = 0.01
    beta1: float = 0.9

    tau = 1e-3  # an option of each of them, behind its own

    def __post_init__(self) -> None:
        name = type(self).__name__
        require(
            0 < self.lr < float("inf"), f"{name}: lr must be above 0, not {self.lr}", where="lr"
        )
        for option, value in vars(self).items():
            if not option.startswith("beta"):
                continue
            require(
                0 <= value < 1, f"{name}: {option} must be in [0, 1), not {value}", where=option
            )
        require(
            0 < self.tau < float("inf"), f"{name}: tau must be above 0, not {self.tau}", where="tau"
        )

    @property
    def traits(self) -> ServerTraits:
        """The moments remember earlier directions."""
        return ServerTraits(rate=self.lr)

    def fit(self, setting: Setting) -> None:
        """Fits everywhere."""

    def init(self, theta: Vector) -> ServerState:
        """First moment 0, second moment tau^2."""
        return {"first": torch.zeros_like(theta), "second": torch.full_like(theta, self.tau**2)}

    def second(self, v: Vector, square: Vector) -> Vector:
        """The second moment after a direction with this square."""
        return v

    def apply(
        self, theta: Vector, direction: Vector, state: ServerState
    ) -> tuple[Vector, ServerState]:
        """One adaptive step."""
        first = self.beta1 * state["first"] + (1 - self.beta1) * direction
        second = self.second(state["second"], direction.square())
        return theta + self.lr * first / (second.sqrt() + self.tau), {
            "first": first,
            "second": second,
        }


@part("server", "adam")
class Adam(_Adaptive):
    """FedAdam: ``v <- beta2 v + (1 - beta2) D^2``.

    Args:
        lr: server learning rate.
        beta1: decay of the first moment m.
        beta2: decay of the second moment v.
        tau: how adaptive the step is; v starts at tau^2.

    Source: B section 4 (Reddi et al. 2021); no bias correction.
    """

    beta2: float = 0.99
    tau: float = 1e-3

    traits = _Adaptive.traits

    def second(self, v: Vector, square: Vector) -> Vector:
        """A moving average of squares."""
        return self.beta2 * v + (1 - self.beta2) * square


@part("server", "yogi")
class Yogi(_Adaptive):
    """FedYogi: ``v <- v - (1 - beta2) D^2 sign(v - D^2)``, which changes slowly when D is small.

    Args:
        lr: server learning rate.
        beta1: decay of the first moment m.
        beta2: how slowly the second moment v changes.
        tau: how adaptive the step is; v starts at tau^2.

    Source: B section 4 (Reddi et al. 2021).
    """

    beta2: float = 0.99
    tau: float = 1e-3

    traits = _Adaptive.traits

    def second(self, v: Vector, square: Vector) -> Vector:
        """Towards the square, by at most a share of it."""
        return v - (1 - self.beta2) * square * (v - square).sign()


@part("server", "adagrad")
class Adagrad(_Adaptive):
    """FedAdagrad: ``v <- v + D^2``; steps shrink with what was travelled.

    Args:
        lr: server learning rate.
        beta1: decay of the first moment m; 0 is plain Adagrad.
        tau: how adaptive the step is; v starts at tau^2.

    Source: B section 4 (Reddi et al. 2021).
    """

    beta1: float = 0.0
    tau: float = 1e-3

    traits = _Adaptive.traits

    def second(self, v: Vector, square: Vector) -> Vector:
        """The sum of squares."""
        return v + square
