"""FedYogi: like Adam, but the second moment changes slowly."""

from __future__ import annotations

from poise.core import adaptive
from poise.core.errors import require
from poise.core.parts import part
from poise.core.protocols import ServerState
from poise.core.types import Setting
from poise.core.vectors import Vector


@part("server", "yogi")
class Yogi:
    """Server step ``theta <- theta + lr m / (sqrt(v) + tau)`` with ``v <- v - (1 - beta2) D^2 sign(v - D^2)``.

    Args:
        lr: server learning rate.
        beta1: decay of the first moment m.
        beta2: decay of the second moment v.
        tau: how adaptive the step is; v starts at tau^2.

    Source: B section 4 (Reddi et al. 2021); no bias correction.
    """

    lr: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3

    def __post_init__(self) -> None:
        adaptive.check("Yogi", self.lr, self.beta1, self.tau)
        require(0 <= self.beta2 < 1, f"Yogi: beta2 must be in [0, 1), not {self.beta2}")

    def fit(self, setting: Setting) -> None:
        """Fits everywhere."""

    def init(self, theta: Vector) -> ServerState:
        """The moments before the first round."""
        return adaptive.start(theta, self.tau)

    def apply(self, theta: Vector, direction: Vector, state: ServerState) -> tuple[Vector, ServerState]:
        """One adaptive step."""

        def second(v: Vector, square: Vector) -> Vector:
            return v - (1 - self.beta2) * square * (v - square).sign()

        return adaptive.move(theta, direction, state, self.lr, self.beta1, self.tau, second)
