"""Stochastic gradient descent, the local work of FedAvg."""

from __future__ import annotations

import numpy as np
import torch

from poise.core.errors import IncompatibleParts, require
from poise.core.parts import part
from poise.core.protocols import Rule, Transform
from poise.core.types import Ints, Setting
from poise.core.vectors import Stack


@part("solver", "sgd")
class SGD:
    """Local SGD: ``w <- w - lr * decay**n * g_i(w)``.

    The gradient is clipped to norm ``clip``, then ``weight_decay * w`` is added, then momentum is
    applied: the order of PyTorch's optimiser. Momentum starts from zero in every piece of work.

    Args:
        lr: learning rate.
        steps: local steps; or give ``epochs``.
        epochs: passes over the client's data.
        batch_size: samples per step; None takes all of the client's.
        momentum: heavy-ball coefficient.
        weight_decay: L2 penalty, on all parameters (bias too).
        clip: largest gradient norm; None for no clipping.
        decay: learning-rate factor per round.

    >>> SGD(lr=0.1, epochs=2, batch_size=50).steps_for(np.array([100, 120]))
    array([4, 6])
    """

    lr: float
    steps: int | None = None
    epochs: int | None = None
    batch_size: int | None = None
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip: float | None = None
    decay: float = 1.0

    def __post_init__(self) -> None:
        require(0 < self.lr < float("inf"), f"SGD: lr must be above 0, not {self.lr}")
        require(
            (self.steps is None) != (self.epochs is None),
            "SGD: the amount of local work is not clear",
            "give either steps= or epochs=",
        )
        work = self.steps if self.epochs is None else self.epochs
        require(work is not None and work >= 1, f"SGD: local work must be at least 1, not {work}")
        require(self.batch_size is None or self.batch_size >= 1, f"SGD: batch_size {self.batch_size} is below 1")
        require(0 <= self.momentum < 1, f"SGD: momentum must be in [0, 1), not {self.momentum}")
        require(0 <= self.weight_decay < float("inf"), f"SGD: weight_decay must be 0 or more, not {self.weight_decay}")
        require(self.clip is None or self.clip > 0, f"SGD: clip must be above 0, not {self.clip}")
        require(0 < self.decay <= 1, f"SGD: decay must be in (0, 1], not {self.decay}")

    def fit(self, setting: Setting) -> None:
        """Batches need data that can be cut into batches."""
        if not setting.batches and self.batch_size is not None:
            raise IncompatibleParts(
                f"SGD: batch_size={self.batch_size}, but this task has exact gradients and no batches",
                "leave batch_size out",
            )

    def steps_for(self, sizes: Ints) -> Ints:
        """Local steps of clients with this many samples."""
        if self.steps is not None:
            return np.full(len(sizes), self.steps, dtype=np.int64)
        assert self.epochs is not None
        per_epoch = -(-sizes // np.minimum(sizes, self.batch_size or sizes))
        return np.asarray(self.epochs * per_epoch, dtype=np.int64)

    def rule(self, start: Stack, version: int) -> Rule:
        """The local step of clients that start from ``start``."""
        chain: list[Transform] = []
        if self.clip is not None:
            chain.append(clipped(self.clip))
        if self.weight_decay:
            chain.append(decayed(self.weight_decay))
        if self.momentum:
            chain.append(heavy_ball(self.momentum, torch.zeros_like(start)))
        return Rule(self.lr * self.decay**version, tuple(chain))


def clipped(norm: float) -> Transform:
    """Rows longer than ``norm`` are scaled back to it."""

    def transform(gradients: Stack, weights: Stack) -> Stack:
        length = torch.linalg.vector_norm(gradients, dim=1, keepdim=True)
        return gradients.mul_((norm / length).clamp_(max=1.0))  # a row of length 0: inf clamps to 1

    return transform


def decayed(rate: float) -> Transform:
    """The gradient of ``rate/2 * |w|^2`` is added."""
    return lambda gradients, weights: gradients.add_(weights, alpha=rate)


def heavy_ball(beta: float, velocity: Stack) -> Transform:
    """``v <- beta v + g``, and v is the step."""

    def transform(gradients: Stack, weights: Stack) -> Stack:
        moving = velocity[: len(gradients)]
        return moving.mul_(beta).add_(gradients)

    return transform
