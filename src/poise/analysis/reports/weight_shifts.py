"""Differences of the weights from the base weights, by round and by client trait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from poise.analysis.reports.estimates import Estimate, estimate
from poise.analysis.reports.groups import Group
from poise.core.types import Floats
from poise.results import Run


def departure(run: Run) -> Floats:
    """Distance of weights from base weights in each aggregation, (R,), in [0, 2].

    ``d_n = sum_i |c_i/sum c - omega_i/sum omega|`` over the clients i of aggregation n;
    nan for aggregations without clients.

    Source: [Mansour 2023, Fig. 6] (the difference between α_i and p_i over the rounds).
    """
    c = run.contributions
    rounds = c["round"]
    total = np.bincount(rounds, c["coefficient"], minlength=run.rounds)
    total_base = np.bincount(rounds, c["base"], minlength=run.rounds)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = c["coefficient"] / total[rounds]
        base_share = c["base"] / total_base[rounds]
        distance = np.bincount(rounds, np.abs(share - base_share), minlength=run.rounds)
    return np.where((total != 0) & (total_base != 0), distance, np.nan)


@dataclass(frozen=True)
class TraitWeight:
    """Mean weight of the clients with one value of a trait, over seeds.

    Args:
        value: value of the trait.
        weight: mean weight of a contribution, averaged within each run, then over runs.
        base: mean base weight, averaged in the same way.
        contributions: number of contributions in all runs.
    """

    value: float
    weight: Estimate
    base: float
    contributions: int


def weights_by_trait(runs: Sequence[Run], trait: str) -> list[TraitWeight]:
    """The mean weight for each value of a trait (imbalance or flip ratio), ascending.

    Source: [Exp-α 2023, Fig. 2a and 2b].
    """
    means_by_value: dict[float, list[_RunMeans]] = {}
    for run in runs:
        c = run.contributions
        traits = run.traits[trait][c["client"]]
        for value in np.unique(traits).tolist():
            rows = c[traits == value]
            means = _RunMeans(
                weight=float(rows["coefficient"].mean()),
                base=float(rows["base"].mean()),
                contributions=len(rows),
            )
            means_by_value.setdefault(float(value), []).append(means)
    weights = []
    for value, runs_means in sorted(means_by_value.items()):
        weights.append(
            TraitWeight(
                value,
                weight=estimate([means.weight for means in runs_means]),
                base=float(np.mean([means.base for means in runs_means])),
                contributions=sum(means.contributions for means in runs_means),
            )
        )
    return weights


class _RunMeans(NamedTuple):
    weight: float
    base: float
    contributions: int


def traits_of(groups: Sequence[Group]) -> list[str]:
    """Traits in which the clients of at least one run differ."""
    names: set[str] = set()
    for group in groups:
        for run in group.runs:
            names.update(
                name for name, values in run.traits.items() if np.ptp(values) > 0
            )
    return sorted(names)
