"""`Directions`: whether large or small values of a metric are good."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

PREFIXES = ("client_test_", "client_local_", "client_", "local_", "own_", "train_")
"""Prefixes of metrics that are measured on the clients' data."""

PREFERRED = (
    "accuracy",
    "loss",
    "own_accuracy",
    "own_loss",
    "train_accuracy",
    "train_loss",
)
"""The metrics that stand for a run, the preferred one first."""

LOWER = frozenset({"loss", "mae", "mse", "rmse", "error", "perplexity"})
"""Last words of the names of metrics whose small values are good."""

SHARES = frozenset({"accuracy", "auprc", "auroc", "concordance", "dice", "f1", "iou"})
"""Last words of the names of metrics that are shares: from 0 to 1."""

NOT_NEGATIVE = frozenset({"mae", "mse", "rmse", "perplexity"})
"""Last words of the names of metrics that are never negative."""


def bounds_of(metric: str) -> tuple[float, float]:
    """Return the smallest and the largest value that a metric can have.

    Losses have no bound: a likelihood of continuous quantities can be negative.

    >>> bounds_of("client_accuracy"), bounds_of("loss"), bounds_of("rmse")
    ((0.0, 1.0), (-inf, inf), (0.0, inf))
    """
    word = re.split(r"[_\- ]", metric.removesuffix("-micro"))[-1]
    if word in SHARES:
        return 0.0, 1.0
    if word in NOT_NEGATIVE:
        return 0.0, math.inf
    return -math.inf, math.inf


@dataclass(frozen=True)
class Directions:
    """Directions that metrics declare; the name decides for the others.

    Args:
        lower: metrics, without prefix, whose small values are good.
        higher: metrics, without prefix, whose large values are good.

    >>> by_name = Directions()
    >>> by_name.lower_is_better("client_loss"), by_name.lower_is_better("accuracy")
    (True, False)
    >>> Directions(lower=frozenset({"gap"})).lower_is_better("own_gap")
    True
    """

    lower: frozenset[str] = frozenset()
    higher: frozenset[str] = frozenset()

    def lower_is_better(self, metric: str) -> bool:
        """Return whether small values of a metric, with or without prefix, are good."""
        names = {metric, base_name(metric)}
        if names & self.lower:
            return True
        if names & self.higher:
            return False
        return re.split(r"[_\- ]", metric)[-1] in LOWER

    def facts(self) -> dict[str, str]:
        """Return what the ledger keeps; nothing if no metric declares a direction."""
        declared = {"lower is better": self.lower, "higher is better": self.higher}
        return {
            key: json.dumps(sorted(names)) for key, names in declared.items() if names
        }

    @staticmethod
    def recorded(meta: Mapping[str, str]) -> Directions:
        """Return the directions in the metadata of a run."""
        lower, higher = (
            frozenset(json.loads(meta.get(key, "[]")))
            for key in ("lower is better", "higher is better")
        )
        return Directions(lower, higher)


def base_name(metric: str) -> str:
    """Return the name of a metric without the prefix of its data."""
    for prefix in PREFIXES:
        if metric.startswith(prefix):
            return metric.removeprefix(prefix)
    return metric


def first_metric(measured: Collection[str]) -> str:
    """Return the metric that stands for a run: of those with one value per round.

    >>> first_metric({"client_loss", "loss", "accuracy"}), first_metric({"client_loss"})
    ('accuracy', '')
    """
    single = sorted(name for name in measured if not name.startswith("client_"))
    return next((name for name in (*PREFERRED, *single) if name in single), "")
