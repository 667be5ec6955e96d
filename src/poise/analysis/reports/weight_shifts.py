"""How far weights went from their base, and which clients gained by it: numbers from the recorded
contributions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from poise.analysis.reports.estimates import Estimate, estimate
from poise.analysis.reports.groups import Group
from poise.core.types import Floats
from poise.ledger import Run


def departure(run: Run) -> Floats:
    """Distance of the coefficients from the base weights in each aggregation, (R,): 0 for none, at
    most 2.

    ``d_n = sum_i |c_i/sum c - omega_i/sum omega|`` over who contributed to aggregation n; nan where
    nobody did.

    Source: D Figure 6 (the difference between α_i and p_i over the rounds).
    """
    c = run.contributions
    rounds = c["round"]
    totals = [
        np.bincount(rounds, c[name], minlength=run.rounds) for name in ("coefficient", "base")
    ]
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = [
            c[name] / total[rounds]
            for name, total in zip(("coefficient", "base"), totals, strict=True)
        ]
        apart = np.bincount(rounds, np.abs(shares[0] - shares[1]), minlength=run.rounds)
    return np.where((totals[0] != 0) & (totals[1] != 0), apart, np.nan)


@dataclass(frozen=True)
class TraitWeight:
    """Mean weight of the clients that share a trait, over seeds.

    Args:
        value: of the trait.
        weight: mean coefficient of a contribution, over the contributions of a run, then over runs.
        base: mean base weight, likewise.
        contributions: how many there were in all runs.
    """

    value: float
    weight: Estimate
    base: float
    contributions: int


def weights_by_trait(runs: Sequence[Run], trait: str) -> list[TraitWeight]:
    """The mean weight of the clients with each value of a trait (imbalance ratio, flip ratio),
    ascending.

    Source: B Figures 2a and 2b.
    """
    found: dict[float, list[tuple[float, float, int]]] = {}
    for run in runs:
        c = run.contributions
        own = run.traits[trait][c["client"]]
        for value in np.unique(own).tolist():
            these = c[own == value]
            means = float(these["coefficient"].mean()), float(these["base"].mean()), len(these)
            found.setdefault(float(value), []).append(means)
    return [
        TraitWeight(
            value,
            estimate([w for w, _, _ in rows]),
            float(np.mean([b for _, b, _ in rows])),
            sum(n for *_, n in rows),
        )
        for value, rows in sorted(found.items())
    ]


def traits_of(groups: Sequence[Group]) -> list[str]:
    """Traits in which the clients of some group differ."""
    names = {
        n: v
        for group in groups
        for run in group.runs
        for n, v in run.traits.items()
        if np.ptp(v) > 0
    }
    return sorted(names)
