"""`OfSet`: a function of all outputs and targets of a set, as a metric."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, SupportsFloat, TypeAlias, runtime_checkable

import torch

from poise.core.errors import IncompatibleParts, require
from poise.metrics.metric import Collected, State, joined

SetFunction: TypeAlias = Callable[[torch.Tensor, torch.Tensor], SupportsFloat]
"""(outputs (n, …), targets (n, …)) -> one number for the set."""


@dataclass(frozen=True)
class OfSet(Collected):
    """A function of (outputs, targets) of a whole set that returns one number.

    poise collects the outputs of the set in memory and calls the function once.

    Args:
        function: gets tensors on the CPU, in the order of the samples.
        higher_is_better: whether large values are good.

    >>> def range_of(outputs, targets):
    ...     return outputs.max() - outputs.min()
    >>> metric = OfSet(range_of, higher_is_better=False)
    >>> state = metric.update(metric.init(), torch.tensor([1.0, 4.0]), torch.zeros(2))
    >>> metric.value(state)
    3.0
    """

    function: SetFunction
    higher_is_better: bool = True

    def __post_init__(self) -> None:
        require(
            callable(self.function),
            f"OfSet: {self.function!r} is no function",
            "give a function of (outputs, targets)",
            where="function",
        )

    def update(
        self, state: State, outputs: torch.Tensor, targets: torch.Tensor
    ) -> State:
        """Return the state with these samples."""
        return (*state, outputs.detach().cpu(), targets.cpu())

    def value(self, state: State) -> float:
        """Return the function's value; nan without samples."""
        if not state:
            return math.nan
        try:
            return float(self.function(*joined(state)))
        except Exception as error:  # the function is the user's: it may raise anything
            raise IncompatibleParts(
                f"the function fails: {type(error).__name__}: {error}",
                "return one number for all samples, or nan where it is undefined",
            ) from error

    def problem(self, targets: torch.Tensor) -> str:
        """Return nothing: only the function knows."""
        return ""


@runtime_checkable
class TorchMetric(Protocol):
    """The members of ``torchmetrics.Metric`` that poise calls."""

    higher_is_better: bool | None

    def reset(self) -> None:
        """Forget all samples."""

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Add samples."""

    def compute(self) -> Any:
        """Return the value."""


@dataclass(frozen=True)
class _Computed:
    """The value of a fresh copy of a torchmetrics object."""

    metric: TorchMetric

    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> SupportsFloat:
        metric = copy.deepcopy(self.metric)
        metric.reset()
        metric.update(outputs, targets)
        value: SupportsFloat = metric.compute()
        return value


def from_torchmetrics(metric: TorchMetric) -> OfSet:
    """Return a torchmetrics object as a metric; it keeps its own settings.

    poise calls a copy of the object with all outputs and targets of a set.
    """
    return OfSet(
        _Computed(metric), higher_is_better=metric.higher_is_better is not False
    )
