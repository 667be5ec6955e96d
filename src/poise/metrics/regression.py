"""`R2`: the share of the variance that a model explains."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from poise.metrics.items import paired
from poise.metrics.metric import State


@dataclass(frozen=True)
class R2:
    """``1 - sum (y - f)^2 / sum (y - mean y)^2``: the mean over the targets of a sample.

    Targets that are constant over the set are left out. The state has the number of
    samples, the mean, the squared deviations and the squared errors of every target, so
    that targets far from 0 lose no digits.

    >>> metric = R2()
    >>> outputs, targets = torch.tensor([2.5, 0.0, 2.0, 8.0]), torch.tensor([3.0, -0.5, 2.0, 7.0])
    >>> round(metric.value(metric.update(metric.init(), outputs, targets)), 6)
    0.948608
    """

    higher_is_better: ClassVar[bool] = True

    def init(self) -> State:
        """Return the state before the first sample."""
        return ()

    def update(
        self, state: State, outputs: torch.Tensor, targets: torch.Tensor
    ) -> State:
        """Return the state with these samples added."""
        predictions, truth = paired(outputs, targets)
        if not len(truth):
            return state
        mean = truth.mean(dim=0)
        spread = (truth - mean).square().sum(dim=0)
        errors = (truth - predictions).square().sum(dim=0)
        count = torch.tensor(float(len(truth)), dtype=torch.float64)
        new = (count, mean.cpu(), spread.cpu(), errors.cpu())
        return self.merge(state, new)

    def merge(self, a: State, b: State) -> State:
        """Return the state after the samples of both states."""
        if not a or not b:
            return a or b
        n_a, mean_a, spread_a, errors_a = a
        n_b, mean_b, spread_b, errors_b = b
        n = n_a + n_b
        gap = mean_b - mean_a
        spread = spread_a + spread_b + gap.square() * (n_a * n_b / n)
        return (n, mean_a + gap * (n_b / n), spread, errors_a + errors_b)

    def value(self, state: State) -> float:
        """Return the mean over the targets that vary; nan if none does."""
        if not state:
            return math.nan
        _, _, spread, errors = state
        varies = spread > 0
        if not bool(varies.any()):
            return math.nan
        return float((1 - errors[varies] / spread[varies]).mean())

    def problem(self, targets: torch.Tensor) -> str:
        """Return why these targets have no variance: they are constant."""
        if not len(targets) or bool((targets == targets[:1]).all()):
            return f"the targets of its {len(targets)} samples do not vary"
        return ""
