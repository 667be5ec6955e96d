"""`LocalSteps` and `LocalSGD`, the bases of local solvers: options, steps, transforms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from poise.core.errors import IncompatibleParts, require
from poise.core.parts import part_option
from poise.core.protocols import Memory, StepRule, Transform
from poise.core.traits import SolverTraits
from poise.core.types import Ints, Setting
from poise.core.vectors import Stack
from poise.solvers.kept import KeptState
from poise.solvers.optimizers.base import Optimizer, fresh_state, made
from poise.solvers.optimizers.momentum import Momentum
from poise.solvers.schedules.base import Schedule
from poise.solvers.schedules.function import Factor, as_schedule
from poise.solvers.transforms import clipped, decayed, decayed_copy, scheduled


@dataclass(frozen=True, kw_only=True)
class LocalSteps:
    """Options of local steps; solvers add gradient terms by `terms` or a memory.

    The order is: terms of the solver, clipping, weight decay, optimiser (PyTorch's
    order), then decoupled weight decay and the local schedule.
    """

    lr: float
    steps: int | None = None
    epochs: int | None = None
    batch_size: int | None = None
    weight_decay: float = 0.0
    decoupled: bool = False
    clip: float | None = None
    decay: float = 1.0
    schedule: str | Schedule | Factor | None = part_option("schedule")
    local_schedule: str | Schedule | Factor | None = part_option("schedule")
    keep_state: bool = False
    accumulate: int = 1

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
        require(
            self.accumulate >= 1,
            f"{name}: accumulate must be at least 1, not {self.accumulate}",
            where="accumulate",
        )
        require(
            self.accumulate == 1 or self.batch_size is not None,
            f"{name}: accumulate = {self.accumulate} adds up batches, but batch_size is missing",
            "give batch_size, the samples of one batch",
            where="accumulate",
        )
        for option in ("schedule", "local_schedule"):
            object.__setattr__(self, option, as_schedule(vars(self)[option]))
        require(
            not self.keep_state or self.optimizer_used is not None,
            f"{name}: keep_state keeps the state of an optimiser, and there is none",
            "remove keep_state, or give an optimizer or momentum",
            where="keep_state",
        )

    @property
    def optimizer_used(self) -> Optimizer | None:
        """The optimiser of the local steps; None for steps along the gradient."""
        return None

    def traits_with(self, declared: SolverTraits) -> SolverTraits:
        """Return the declared traits, with the facts that follow from the options."""
        optimizer = self.optimizer_used
        first_step = None if optimizer is None else optimizer.first_step
        traits = replace(
            declared,
            weight_decay=self.weight_decay,
            clips=self.clip is not None,
            constant_rate=self.decay == 1
            and _constant(self.schedule)
            and _constant(self.local_schedule),
            scale_free=first_step is not None,
            first_step=first_step,
        )
        if isinstance(optimizer, Momentum):
            traits = replace(traits, momentum=optimizer.beta)
        if self.decoupled and optimizer is not None:
            traits = replace(
                traits, weight_decay=0.0, decoupled_decay=self.weight_decay
            )
        if self.keep_state:
            traits = replace(traits, sends_only_updates=False)
        if self._follows_gradients:
            return traits
        return replace(
            traits, gradient_steps=False, own_share=None, removes_drift=False
        )

    @property
    def _follows_gradients(self) -> bool:
        """Whether steps are gradient steps of one rate, up to heavy-ball momentum."""
        optimizer = self.optimizer_used
        if not _constant(self.local_schedule):
            return False
        if optimizer is None:
            return True
        heavy_ball = isinstance(optimizer, Momentum) and not optimizer.nesterov
        return heavy_ball and not self.keep_state and not self.decoupled

    @property
    def memory(self) -> Memory | None:
        """The state between rounds: `own_memory`, with the kept state of the optimiser."""
        optimizer = self.optimizer_used
        if not self.keep_state or optimizer is None:
            return self.own_memory
        return KeptState(optimizer, self, self.own_memory or Memory())

    @property
    def own_memory(self) -> Memory | None:
        """The state between rounds beside that of the optimiser; none by default."""
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
        if self.keep_state and not isinstance(self.memory, KeptState):
            raise IncompatibleParts(
                f"{type(self).__name__} replaces memory, and would lose the kept state",
                "replace own_memory instead, or remove keep_state",
                where=("keep_state",),
            )

    def steps_for(self, sizes: Ints) -> Ints:
        """Return the number of local steps of clients with this many samples."""
        if self.steps is not None:
            return np.full(len(sizes), self.steps, dtype=np.int64)
        assert self.epochs is not None
        per_step = self.accumulate * (self.batch_size or 0)
        per_epoch = -(-sizes // np.minimum(sizes, per_step or sizes))
        return np.asarray(self.epochs * per_epoch, dtype=np.int64)

    def terms(self, start: Stack) -> tuple[Transform, ...]:
        """Return the terms that this solver adds to the gradient; none by default."""
        return ()

    def rule(self, start: Stack, version: int) -> StepRule:
        """Return the step rule of clients that start from ``start``."""
        chain = list(self.terms(start))
        if self.clip is not None and self.clip < float("inf"):
            chain.append(clipped(self.clip))
        if self.weight_decay and not self._decays_last:
            chain.append(decayed(self.weight_decay))
        if not self.keep_state:  # otherwise, the memory has the directions
            optimizer = self.optimizer_used
            state = {} if optimizer is None else fresh_state(optimizer, start)
            chain += self.directions(start, state)
        return StepRule(self.rate(version), tuple(chain))

    @property
    def _decays_last(self) -> bool:
        """Whether the weight decay comes after the optimiser; the same without one."""
        return self.decoupled and self.optimizer_used is not None

    def directions(
        self, start: Stack, state: Mapping[str, Stack]
    ) -> tuple[Transform, ...]:
        """Return the transforms from gradients to directions: optimiser, decay, schedule."""
        chain: list[Transform] = []
        if self.optimizer_used is not None:
            chain.append(self.optimizer_used.direction(state))
        if self.weight_decay and self._decays_last:
            chain.append(decayed_copy(self.weight_decay))
        if isinstance(self.local_schedule, Schedule) and not _constant(
            self.local_schedule
        ):
            chain.append(scheduled(self.local_schedule.factor))
        return tuple(chain)

    def rate(self, version: int) -> float:
        """Return the learning rate on this version, ``lr * decay**n * schedule(n)``."""
        rate = self.lr * self.decay**version
        if self.schedule is not None and isinstance(self.schedule, Schedule):
            return rate * self.schedule.factor(version)
        return rate


@dataclass(frozen=True, kw_only=True)
class LocalSGD(LocalSteps):
    """Options of local SGD: those of `LocalSteps`, momentum, or another optimiser."""

    momentum: float = 0.0
    nesterov: bool = False
    optimizer: str | Optimizer | None = part_option("optimizer")

    def __post_init__(self) -> None:
        super().__post_init__()
        name = type(self).__name__
        require(
            0 <= self.momentum < 1,
            f"{name}: momentum must be in [0, 1), not {self.momentum}",
            where="momentum",
        )
        require(
            self.momentum > 0 or not self.nesterov,
            f"{name}: nesterov needs momentum above 0",
            "for example momentum=0.9",
            where="nesterov",
        )
        require(
            self.momentum == 0 or self.optimizer is None,
            f"{name}: momentum and optimizer exclude each other",
            "remove one of them",
            where="optimizer",
        )

    @property
    def optimizer_used(self) -> Optimizer | None:
        """Momentum, the chosen optimiser, or None."""
        if self.momentum:
            return made(Momentum, self.momentum, self.nesterov)
        # most runs have none, and a check against a protocol takes microseconds
        if self.optimizer is not None and isinstance(self.optimizer, Optimizer):
            return self.optimizer
        return None


def _constant(schedule: str | Schedule | Factor | None) -> bool:
    """Return whether a schedule leaves the rate as it is."""
    return schedule is None or not isinstance(schedule, Schedule) or schedule.constant
