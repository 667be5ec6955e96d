"""Noise on a restart model, and a commitment that binds to its seed without revealing it."""

from __future__ import annotations

import hashlib

import torch

from poise.core.rng import torch_generator
from poise.core.vectors import Vector


def perturbed(
    theta: Vector, sigma: float, *, seed: int, index: int, trainable: int
) -> Vector:
    """Return ``theta + N(0, sigma^2 I)``, with noise on the trainable entries only.

    ``seed`` and the number ``index`` of the request determine the noise.
    """
    if sigma == 0:
        return theta.clone()
    generator = torch_generator(seed, "unlearning", index)
    draw = torch.randn(trainable, generator=generator, dtype=torch.float64)
    moved = theta.clone()
    moved[:trainable] += (sigma * draw).to(theta)
    return moved


def commitment(seed: int, index: int) -> str:
    """Return a hash that binds to the seed of the noise.

    >>> commitment(7, 1) == commitment(7, 1), commitment(7, 1) == commitment(8, 1)
    (True, False)
    """
    text = f"poise unlearning noise, request {index}, seed {seed}"
    return hashlib.sha256(text.encode()).hexdigest()
