"""`Optimizer`, the protocol of local optimisers, and their state."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache
from typing import Protocol, TypeVar, cast, runtime_checkable

from poise.core.errors import require
from poise.core.protocols import Transform
from poise.core.vectors import Stack

Made = TypeVar("Made")

STEPS = "steps"
"""The state with one number per client: the steps it has made."""

OptimizerState = Mapping[str, Stack]
"""The stacks of an optimiser by name, one row per client."""


@runtime_checkable
class Optimizer(Protocol):
    """How a gradient becomes the direction of a local step, row by row."""

    @property
    def keeps(self) -> tuple[str, ...]:
        """Names of its state: stacks like the models, and `STEPS`, (m, 1)."""

    @property
    def first_step(self) -> float | None:
        """Move of each coordinate in the first step, in units of the rate.

        The move does not depend on the size of the gradient; None if it does.
        """

    def direction(self, state: OptimizerState) -> Transform:
        """Return the transform from gradients to directions.

        The transform changes the state in place. It receives the first rows only when
        the last clients have made their steps.
        """


def made(kind: type[Made], *options: float) -> Made:
    """Return the optimiser of these options; made once, because making checks types."""
    return cast(Made, _made(cast("Hashable", kind), *options))


@lru_cache
def _made(kind: Hashable, *options: float) -> object:
    return cast("Callable[..., object]", kind)(*options)


def initial_state(name: str, start: Stack) -> Stack:
    """Return the state of this name before the first step: zeros."""
    if name == STEPS:
        return start.new_zeros(len(start), 1)
    return start.new_zeros(start.shape)


def fresh_state(optimizer: Optimizer, start: Stack) -> dict[str, Stack]:
    """Return the state of an optimiser before the first step."""
    return {name: initial_state(name, start) for name in optimizer.keeps}


def require_share(value: float, part: str, option: str) -> None:
    """Raise unless a coefficient of a moving average is in [0, 1)."""
    require(
        0 <= value < 1,
        f"{part}: {option} must be in [0, 1), not {value}",
        where=option,
    )


def require_eps(value: float, part: str) -> None:
    """Raise unless eps is above 0: at a gradient of 0, an optimiser divides by it."""
    require(
        0 < value < float("inf"),
        f"{part}: eps must be above 0, not {value}",
        where="eps",
    )
