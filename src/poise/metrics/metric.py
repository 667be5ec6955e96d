"""`Metric`: a value of a set of samples, computed block by block."""

from __future__ import annotations

from typing import Protocol, TypeAlias, runtime_checkable

import torch

State: TypeAlias = tuple[torch.Tensor, ...]
"""What a metric keeps of the samples that it has seen; () before the first."""


@runtime_checkable
class Metric(Protocol):
    """A value of a set of samples that is not the mean of values per sample.

    ``value(merge(update(init(), A), update(init(), B)))`` is the value of A and B
    together, so a set can be measured in blocks and by several workers.
    """

    @property
    def higher_is_better(self) -> bool:
        """Whether large values are good."""

    def init(self) -> State:
        """Return the state before the first sample."""

    def update(
        self, state: State, outputs: torch.Tensor, targets: torch.Tensor
    ) -> State:
        """Return the state after more samples; raise if the shapes do not fit."""

    def merge(self, a: State, b: State) -> State:
        """Return the state after the samples of both states."""

    def value(self, state: State) -> float:
        """Return the value; nan if it is undefined."""

    def problem(self, targets: torch.Tensor) -> str:
        """Return why no model has a value on these targets; empty if some model has."""


class Summed:
    """Base of metrics whose state is a sum of tensors, such as counts."""

    def init(self) -> State:
        """Return the state before the first sample."""
        return ()

    def merge(self, a: State, b: State) -> State:
        """Return the state after the samples of both states."""
        if not a or not b:
            return a or b
        return tuple(x + y for x, y in zip(a, b, strict=True))


class Collected:
    """Base of metrics that need all samples at once: a state is a list of blocks.

    Every block is a pair of tensors; a state has one pair after the other.
    """

    def init(self) -> State:
        """Return the state before the first sample."""
        return ()

    def merge(self, a: State, b: State) -> State:
        """Return the state after the samples of both states."""
        return a + b


def joined(state: State) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the samples of all blocks of a `Collected` state."""
    return torch.cat(state[0::2]), torch.cat(state[1::2])
