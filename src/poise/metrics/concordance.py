"""`Concordance`: how often a model orders two samples as their targets do."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from poise.core.errors import IncompatibleParts
from poise.core.types import Floats, Ints
from poise.metrics.metric import Collected, State, joined

BLOCK = 1024
"""Samples that are compared one by one with those after them."""


@dataclass(frozen=True)
class Concordance(Collected):
    """Harrell's C: the share of comparable pairs in the right order; equal outputs count half.

    Targets (n, 2) are pairs (time, event): the output is a risk, and the sample with the
    earlier event should have the higher risk. A pair is comparable if the earlier time
    is of an event (event = 1, not 0 for censored); at equal times, an event comes before
    a censored sample, and two events cannot be compared.

    Targets (n,) are numbers: the sample with the larger target should have the larger
    output. Pairs of equal targets cannot be compared.

    >>> metric = Concordance()
    >>> risk = torch.tensor([3.0, 2.0, 1.0])
    >>> times = torch.tensor([[1.0, 1.0], [2.0, 0.0], [3.0, 1.0]])
    >>> metric.value(metric.update(metric.init(), risk, times))
    1.0

    Source: [Harrell 1982].
    """

    higher_is_better: ClassVar[bool] = True

    def update(
        self, state: State, outputs: torch.Tensor, targets: torch.Tensor
    ) -> State:
        """Return the state with the risks (m,) and the pairs (time, event) of these samples."""
        if outputs.numel() != len(outputs):
            raise IncompatibleParts(
                f"the model has {outputs[0].numel()} outputs per sample, not one",
                "return one number per sample",
            )
        risk = outputs.detach().reshape(-1).double().cpu()
        if not _survival(targets):
            risk = -risk
        return (*state, risk, _times(targets).cpu())

    def value(self, state: State) -> float:
        """Return the share; nan if no pair is comparable or an output is nan."""
        if not state:
            return math.nan
        risk, times = joined(state)
        if bool(risk.isnan().any()):
            return math.nan
        twice, pairs = _twice_right(risk.numpy(), times.numpy())
        return twice / (2 * pairs) if pairs else math.nan

    def problem(self, targets: torch.Tensor) -> str:
        """Return why no pair of these targets can be compared."""
        times = _times(targets)
        if not bool((times[:, 1] > 0).any()):
            return "it has no events"
        # the first event is comparable with every later sample
        first = times[times[:, 1] > 0, 0].min()
        censored = times[:, 1] <= 0
        if not bool(
            ((times[:, 0] > first) | (censored & (times[:, 0] >= first))).any()
        ):
            return "no two samples can be compared"
        return ""


def _survival(targets: torch.Tensor) -> bool:
    return targets.dim() == 2 and targets.shape[1] == 2


def _times(targets: torch.Tensor) -> torch.Tensor:
    """Return the pairs (time, event); a plain number is a time with an event."""
    if _survival(targets):
        return targets.double()
    if targets.numel() != len(targets):
        raise IncompatibleParts(
            f"the targets have shape {tuple(targets.shape)}",
            "give one number, or a pair (time, event), per sample",
        )
    numbers = targets.reshape(-1).double()
    return torch.stack([numbers, torch.ones_like(numbers)], dim=1)


def _twice_right(risk: Floats, times: Floats) -> tuple[int, int]:
    """Return twice the number of right pairs (ties once), and the number of pairs.

    In the order of the times, events before censored samples, an event is comparable
    with all samples from a position on: count those with a lower and an equal risk.
    """
    order = np.lexsort((times[:, 1] <= 0, times[:, 0]))
    risk, time, event = risk[order], times[order, 0], times[order, 1] > 0
    # events of the same time come first: the others begin after the last of them
    ends = np.searchsorted(time, time, side="right")
    starts = np.searchsorted(time, time, side="left")
    before = np.concatenate([[0], np.cumsum(event)])
    begin = starts + before[ends] - before[starts]
    twice = _lower_and_equal(risk, risk[event], begin[event])
    return twice, int((len(risk) - begin[event]).sum())


def _lower_and_equal(risk: Floats, asked: Floats, begin: Ints) -> int:
    """Return, summed over queries: 2 (lower risks) + (equal risks) from a position on."""
    total = 0
    for a in range(0, len(risk), BLOCK):
        block = np.sort(risk[a : a + BLOCK])
        whole = asked[begin <= a]
        lower = np.searchsorted(block, whole, side="left")
        not_higher = np.searchsorted(block, whole, side="right")
        total += int(lower.sum() + not_higher.sum())
        part = np.flatnonzero((begin > a) & (begin < a + BLOCK))
        for query in part.tolist():
            rest = risk[begin[query] : a + BLOCK]
            total += 2 * int((rest < asked[query]).sum())
            total += int((rest == asked[query]).sum())
    return total
