"""sigma^2 and G^2 from the gradients of single samples."""

from __future__ import annotations

from math import inf

import numpy as np
import torch

from poise.analysis.explain.curvature import Constant
from poise.core.batches import Batch
from poise.core.federations import FederationLike
from poise.core.protocols import Oracle
from poise.core.rng import generator, keys
from poise.core.types import Ints
from poise.core.vectors import Vector
from poise.tasks.client_gradients import cost, some_clients

SINGLE = 4e7
"""Multiplications for gradients of single samples."""

PER_CLIENT = 24
"""Maximum number of samples per client."""


def gradient_constants(
    oracle: Oracle,
    federation: FederationLike,
    points: list[Vector],
    decay: float,
    batch_size: int | None,
    seed: int,
) -> tuple[Constant, Constant, Constant]:
    """sigma^2 and G^2 of a step's gradient, and the largest |grad F_i - grad F|^2."""
    room = SINGLE / cost(oracle)
    drawn = 1
    if oracle.batches:
        drawn = int(np.clip(room / 2, 4, PER_CLIENT))
    most = int(np.clip(room / drawn, 2, 64))
    numbers = some_clients(federation, most, seed)
    values = [
        _values_at(
            oracle,
            numbers,
            theta=w,
            decay=decay,
            batch_size=batch_size,
            drawn=drawn,
            seed=seed,
        )
        for w in points
    ]
    noises, norms, spreads = zip(*values, strict=True)
    noise = max(noises)
    norm = max(norms)
    spread = max(spreads)
    where = "at the initial model"
    if len(points) > 1:
        where = "at the initial model and at the optimum"
    how = f"exact {where}"
    if oracle.batches:
        how = f"maximum over {drawn} samples of {len(numbers)} clients, {where}"
    upper = spread
    if len(numbers) < federation.clients:
        upper = inf
    return (
        Constant(noise[0], max(noise[0] - noise[1], 0.0), noise[0] + noise[1], how),
        Constant(norm[0], max(norm[0] - norm[1], 0.0), norm[0] + norm[1], how),
        Constant(spread, spread, upper, f"maximum over {len(numbers)} clients"),
    )


def _values_at(
    oracle: Oracle,
    numbers: Ints,
    theta: Vector,
    decay: float,
    batch_size: int | None,
    drawn: int,
    seed: int,
) -> tuple[tuple[float, float], tuple[float, float], float]:
    """(sigma^2, half-width), (G^2, half-width), both largest over clients; spread."""
    noises = []
    norms = []
    means = []
    for client in numbers.tolist():
        rows = _samples(
            oracle, client, theta=theta, decay=decay, drawn=drawn, seed=seed
        )
        mean = rows.mean(dim=0)
        size = _size(oracle, client)
        squares = rows.square().sum(dim=1).double().numpy()
        k = len(squares)
        batch = size
        if batch_size is not None:
            batch = min(batch_size, size)
        # batches without replacement
        if oracle.batches:
            share = (size - batch) / size / batch
        else:
            share = 0.0
        level = float(mean.square().sum())
        variance = max(float(squares.mean()) - level, 0.0) * k / max(k - 1, 1)
        # |grad F_i|^2
        if oracle.batches:
            exact = max(level - variance * (size - k) / size / k, 0.0)
        else:
            exact = level
        half = 1.96 * float(squares.std()) / np.sqrt(k)
        noises.append((share * variance, share * half))
        norms.append((exact + share * variance, half))
        means.append(mean)
    centre = torch.stack(means).mean(dim=0)
    spread = max(float((mean - centre).square().sum()) for mean in means)
    return max(noises), max(norms), spread


def _samples(
    oracle: Oracle, client: int, theta: Vector, decay: float, drawn: int, seed: int
) -> torch.Tensor:
    """Gradients of a client's single samples, or small batches, (k, trainable)."""
    size = _size(oracle, client)
    trainable = oracle.layout.trainable
    k = 1
    if oracle.batches:
        k = min(drawn, size)
    who = np.full(k, client, dtype=np.int64)
    data = oracle.open(who, keys(seed, "explain", who))
    order = generator(seed, "explain samples", client).permutation(size)
    if oracle.batches:
        base = np.asarray(data.offsets[:-1])
    else:
        base = np.zeros(1, dtype=np.int64)
    out = theta.new_empty((k, trainable))
    for width in (1, min(8, size)):
        if oracle.batches:
            chosen = order[(np.arange(k * width) % size)].reshape(k, width)
        else:
            chosen = np.zeros((1, 1), int)
        batch = Batch(
            torch.from_numpy(chosen + base[:, None]), torch.full((k,), width), True
        )
        try:
            oracle.gradients(theta.repeat(k, 1), data, batch, out)
            break
        except ValueError:  # batch norm needs more than one sample
            if width > 1:
                raise
    return out + decay * theta[:trainable]


def _size(oracle: Oracle, client: int) -> int:
    who = np.array([client], dtype=np.int64)
    return int(oracle.open(who, keys(0, "explain", who)).sizes[0])
