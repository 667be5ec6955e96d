"""Transforms of gradients that need no state beyond one piece of work."""

from __future__ import annotations

from collections.abc import Callable

import torch

from poise.core.protocols import Transform
from poise.core.vectors import Stack


def clipped(norm: float) -> Transform:
    """Return the transform that scales rows longer than ``norm`` down to it."""

    def transform(gradients: Stack, weights: Stack) -> Stack:
        length = torch.linalg.vector_norm(gradients, dim=1, keepdim=True)
        # for length 0, inf clamps to 1
        return gradients.mul_((norm / length).clamp_(max=1.0))

    return transform


def pulled(mu: float, start: Stack) -> tuple[Transform, ...]:
    """Return FedProx's term ``mu (w - theta)``; none if mu = 0."""
    if mu == 0:
        return ()

    def transform(gradients: Stack, weights: Stack) -> Stack:
        return gradients.add_(weights, alpha=mu).sub_(start[: len(gradients)], alpha=mu)

    return (transform,)


def decayed(rate: float) -> Transform:
    """Return the transform that adds the gradient of ``rate/2 * |w|^2``."""
    return lambda gradients, weights: gradients.add_(weights, alpha=rate)


def decayed_copy(rate: float) -> Transform:
    """Return `decayed` for a direction that an optimiser still needs."""
    return lambda directions, weights: torch.add(directions, weights, alpha=rate)


def scheduled(factor: Callable[[int], float]) -> Transform:
    """Return the transform that multiplies the direction of local step k by ``factor(k)``."""
    step = -1

    def transform(directions: Stack, weights: Stack) -> Stack:
        nonlocal step
        step += 1
        return directions * factor(step)

    return transform
