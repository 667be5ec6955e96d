"""Noise on a model, named by a seed that can be committed to without being told."""

from __future__ import annotations

import hashlib

import torch

from poise.core.rng import torch_generator
from poise.core.vectors import Vector


def perturbed(theta: Vector, sigma: float, seed: int, index: int, trainable: int) -> Vector:
    """``theta + N(0, sigma^2 I)`` on what is trained; the noise is that of request ``index`` under
    ``seed``.
    """
    if sigma == 0:
        return theta.clone()
    draw = torch.randn(
        trainable, generator=torch_generator(seed, "unlearning", index), dtype=torch.float64
    )
    moved = theta.clone()
    moved[:trainable] += (sigma * draw).to(theta)
    return moved


def commitment(seed: int, index: int) -> str:
    """A hash that binds to the seed of the noise.

    >>> commitment(7, 1) == commitment(7, 1), commitment(7, 1) == commitment(8, 1)
    (True, False)
    """
    return hashlib.sha256(
        f"poise unlearning noise, request {index}, seed {seed}".encode()
    ).hexdigest()
