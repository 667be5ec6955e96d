"""Successive halving: at a rung, the best configurations go on and the others stop.

A configuration counts with the mean of the metric over all of its seeds, so it goes on
or stops with all of its runs [Jamieson 2016].
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RungDecision:
    """The decision at one rung of a sweep.

    Args:
        rung: its number, from 1.
        round: after how many rounds configurations were compared.
        kept: the names of the configurations that go on, best first.
        stopped: the names of the others, best first.
        means: the mean of the metric over the seeds, by name; nan for a failed run.
    """

    rung: int
    round: int
    kept: tuple[str, ...]
    stopped: tuple[str, ...]
    means: Mapping[str, float]

    def document(self) -> dict[str, Any]:
        """Return the decision as plain values; nan becomes null."""
        means = {
            name: None if math.isnan(mean) else mean
            for name, mean in self.means.items()
        }
        return {
            "rung": self.rung,
            "round": self.round,
            "kept": list(self.kept),
            "stopped": list(self.stopped),
            "means": means,
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> RungDecision:
        """Return the decision of `document`."""
        means = {
            name: math.nan if mean is None else float(mean)
            for name, mean in document["means"].items()
        }
        return cls(
            int(document["rung"]),
            int(document["round"]),
            kept=tuple(document["kept"]),
            stopped=tuple(document["stopped"]),
            means=means,
        )


def decide(
    scores: Mapping[str, Sequence[float]],
    *,
    rung: int,
    round: int,
    eta: int,
    lower_is_better: bool,
) -> RungDecision:
    """Keep the best ceil(n / eta) of n configurations, by their mean over the seeds.

    Of equal means, the first goes on. A configuration whose mean is not finite comes
    last.

    >>> scores = {"a": [0.5, 0.7], "b": [0.9, 0.1], "c": [0.8, 0.8], "d": [0.6, 0.6]}
    >>> decision = decide(scores, rung=1, round=10, eta=2, lower_is_better=False)
    >>> decision.kept, decision.stopped
    (('c', 'a'), ('d', 'b'))
    """
    means = {name: _mean(values) for name, values in scores.items()}
    sign = 1 if lower_is_better else -1
    order = sorted(means, key=lambda name: _rank(means[name], sign))
    kept = math.ceil(len(order) / eta)
    return RungDecision(
        rung,
        round,
        kept=tuple(order[:kept]),
        stopped=tuple(order[kept:]),
        means=means,
    )


def _mean(values: Sequence[float]) -> float:
    """Return the exact sum divided by the number, whatever the order; nan for none."""
    if not values or not all(math.isfinite(value) for value in values):
        return math.nan
    return math.fsum(values) / len(values)


def _rank(mean: float, sign: int) -> tuple[bool, float]:
    """Return the key of a sort that puts the best mean first and nan last."""
    if math.isnan(mean):
        return True, 0.0
    return False, sign * mean
