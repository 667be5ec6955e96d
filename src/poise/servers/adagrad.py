"""FedAdagrad: steps that shrink with what was travelled."""

from __future__ import annotations

from poise.core import adaptive
from poise.core.parts import part
from poise.core.protocols import ServerState
from poise.core.types import Setting
from poise.core.vectors import Vector


@part("server", "adagrad")
class Adagrad:
    """Server step ``theta <- theta + lr m / (sqrt(v) + tau)`` with ``v <- v + D^2``.

    Args:
        lr: server learning rate.
        beta1: decay of the first moment m.
        tau: how adaptive the step is; v starts at tau^2.

    Source: B section 4 (Reddi et al. 2021); no bias correction.
    """

    lr: float = 0.01
    beta1: float = 0.0
    tau: float = 1e-3

    def __post_init__(self) -> None:
        adaptive.check("Adagrad", self.lr, self.beta1, self.tau)

    def fit(self, setting: Setting) -> None:
        """Fits everywhere."""

    def init(self, theta: Vector) -> ServerState:
        """The moments before the first round."""
        return adaptive.start(theta, self.tau)

    def apply(self, theta: Vector, direction: Vector, state: ServerState) -> tuple[Vector, ServerState]:
        """One adaptive step."""

        def second(v: Vector, square: Vector) -> Vector:
            return v + square

        return adaptive.move(theta, direction, state, self.lr, self.beta1, self.tau, second)
