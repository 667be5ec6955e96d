"""`LocalSGD`, the base of local solvers: options, steps and gradient transforms."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from poise.core.errors import IncompatibleParts, require
from poise.core.protocols import Memory, StepRule, Transform
from poise.core.traits import SolverTraits
from poise.core.types import Ints, Setting
from poise.core.vectors import Stack


@dataclass(frozen=True, kw_only=True)
class LocalSGD:
    """Options of local SGD; solvers add gradient terms by `terms` or a `memory`.

    The order is: terms of the solver, clipping, weight decay, momentum (PyTorch's
    order).
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
        name = type(self).__name__
        require(
            0 < self.lr < float("inf"),
            f"{name}: lr must be above 0, not {self.lr}",
            where="lr",
        )
        require(
            (self.steps is None) != (self.epochs is None),
            f"{name}: exactly one of steps and epochs is required",
            "give either steps= or epochs=",
        )
        option = "steps"
        work: float | None = self.steps
        if self.epochs is not None:
            option = "epochs"
            work = self.epochs
        require(
            work is not None and work >= 1,
            f"{name}: {option} must be at least 1, not {work}",
            where=option,
        )
        require(
            self.batch_size is None or self.batch_size >= 1,
            f"{name}: batch_size must be at least 1, not {self.batch_size}",
            where="batch_size",
        )
        require(
            0 <= self.momentum < 1,
            f"{name}: momentum must be in [0, 1), not {self.momentum}",
            where="momentum",
        )
        require(
            0 <= self.weight_decay < float("inf"),
            f"{name}: weight_decay must be 0 or more, not {self.weight_decay}",
            where="weight_decay",
        )
        require(
            self.clip is None or self.clip > 0,
            f"{name}: clip must be above 0, not {self.clip}",
            where="clip",
        )
        require(
            0 < self.decay <= 1,
            f"{name}: decay must be in (0, 1], not {self.decay}",
            where="decay",
        )

    def traits_with(self, declared: SolverTraits) -> SolverTraits:
        """Return the declared traits, with the facts that follow from the options."""
        return replace(
            declared,
            weight_decay=self.weight_decay,
            momentum=self.momentum,
            clips=self.clip is not None,
            constant_rate=self.decay == 1,
        )

    @property
    def memory(self) -> Memory | None:
        """The state that clients and server keep between rounds; none by default."""
        return None

    def fit(self, setting: Setting) -> None:
        """Refuse batch sizes for exact gradients, and client state on demand."""
        if not setting.batches and self.batch_size is not None:
            raise IncompatibleParts(
                (
                    f"{type(self).__name__}: batch_size={self.batch_size}, but this task has exact "
                    "gradients, no batches"
                ),
                "remove batch_size",
                where=("batch_size",),
            )
        if self.memory is not None and self.memory.keeps and setting.on_demand:
            raise IncompatibleParts(
                (
                    f"{type(self).__name__}: clients keep state between rounds, but clients made "
                    "on demand keep none"
                ),
                "use a solver without client state",
            )

    def steps_for(self, sizes: Ints) -> Ints:
        """Return the number of local steps of clients with this many samples."""
        if self.steps is not None:
            return np.full(len(sizes), self.steps, dtype=np.int64)
        assert self.epochs is not None
        per_epoch = -(-sizes // np.minimum(sizes, self.batch_size or sizes))
        return np.asarray(self.epochs * per_epoch, dtype=np.int64)

    def terms(self, start: Stack) -> tuple[Transform, ...]:
        """Return the terms that this solver adds to the gradient; none by default."""
        return ()

    def rule(self, start: Stack, version: int) -> StepRule:
        """Return the step rule of clients that start from ``start``."""
        chain = list(self.terms(start))
        if self.clip is not None and self.clip < float("inf"):
            chain.append(clipped(self.clip))
        if self.weight_decay:
            chain.append(decayed(self.weight_decay))
        if self.momentum:
            chain.append(heavy_ball(self.momentum, torch.zeros_like(start)))
        return StepRule(self.rate(version), tuple(chain))

    def rate(self, version: int) -> float:
        """Return the learning rate on this model version, ``lr * decay**n``."""
        return self.lr * self.decay**version


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


def heavy_ball(beta: float, velocity: Stack) -> Transform:
    """Return the transform ``v <- beta v + g``, which steps along v."""

    def transform(gradients: Stack, weights: Stack) -> Stack:
        moving = velocity[: len(gradients)]
        return moving.mul_(beta).add_(gradients)

    return transform
