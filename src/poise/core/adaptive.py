"""What the adaptive server optimisers share (Reddi et al. 2021).

    m <- beta1 m + (1 - beta1) D,   v <- second(v, D^2),   theta <- theta + lr m / (sqrt(v) + tau)

No bias correction; ``v`` starts at ``tau^2``.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from poise.core.errors import require
from poise.core.protocols import ServerState
from poise.core.vectors import Vector


def check(name: str, lr: float, beta1: float, tau: float) -> None:
    """Ranges of the options that all of them have."""
    require(0 < lr < float("inf"), f"{name}: lr must be above 0, not {lr}")
    require(0 <= beta1 < 1, f"{name}: beta1 must be in [0, 1), not {beta1}")
    require(0 < tau < float("inf"), f"{name}: tau must be above 0, not {tau}")


def start(theta: Vector, tau: float) -> ServerState:
    """First moment 0, second moment tau^2."""
    return {"first": torch.zeros_like(theta), "second": torch.full_like(theta, tau**2)}


def move(
    theta: Vector, direction: Vector, state: ServerState, lr: float, beta1: float, tau: float,
    second: Callable[[Vector, Vector], Vector],
) -> tuple[Vector, ServerState]:  # fmt: skip
    """One adaptive step; ``second(v, D^2)`` is what tells the methods apart."""
    first = beta1 * state["first"] + (1 - beta1) * direction
    spread = second(state["second"], direction.square())
    return theta + lr * first / (spread.sqrt() + tau), {"first": first, "second": spread}
