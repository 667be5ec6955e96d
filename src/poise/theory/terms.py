"""The parts of a bound: terms, assumptions, source, and constants of a problem."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite, nan
from typing import Any

import numpy as np

from poise.core.errors import InvalidOption, suggest
from poise.core.types import Floats


@dataclass(frozen=True)
class Assumption:
    """A condition of a theorem; ``holds`` is None if the constants do not decide it."""

    text: str
    holds: bool | None = None


def all_hold(assumptions: Iterable[Assumption]) -> bool | None:
    """False if an assumption is broken, None if one is undecided, else True."""
    known = [a.holds for a in assumptions]
    if False in known:
        return False
    if None in known:
        return None
    return True


@dataclass(frozen=True)
class Terms:
    """The named terms of a bound, and their total.

    Args:
        name: the quantity that the terms bound.
        source: the theorem.
        values: the terms by name.
        assumptions: the conditions of the theorem.
        sharp: false where the source gives the terms only up to numerical constants:
            compare them over settings, but do not read their total as a bound.
        least: true for a lower bound of the form min{a, b}: the total is the smallest
            term.

    >>> Terms("an example", "nowhere", {"start": 2.0, "noise": 0.5}).total
    2.5
    """

    name: str
    source: str
    values: Mapping[str, float]
    assumptions: tuple[Assumption, ...] = ()
    sharp: bool = True
    least: bool = False

    @property
    def total(self) -> float:
        """The bound: the sum of the terms, or with ``least`` the smallest one."""
        combine = min if self.least else sum
        return float(combine(self.values.values()))

    @property
    def holds(self) -> bool | None:
        """False if an assumption is broken, None if one is undecided, else True."""
        return all_hold(self.assumptions)

    def __getitem__(self, name: str) -> float:
        if name not in self.values:
            raise InvalidOption(
                f"{self.name} has no term {name!r}", suggest(name, self.values)
            )
        return float(self.values[name])

    def as_data(self) -> dict[str, Any]:
        """Return the terms as plain values, for JSON."""
        return {
            "name": self.name,
            "source": self.source,
            "terms": {k: float(v) for k, v in self.values.items()},
            "total": self.total,
            "up to constants": not self.sharp,
            "holds": self.holds,
            "assumptions": [
                {"text": a.text, "holds": a.holds} for a in self.assumptions
            ],
        }


@dataclass(frozen=True)
class Problem:
    """The constants of a federated problem that the bounds use; nan where unknown.

    Args:
        smoothness: L, of every client's loss.
        convexity: mu > 0, strong convexity of every client's loss.
        noise: sigma^2, variance of a client's stochastic gradient.
        gradient: G^2, mean square norm of a client's stochastic gradient.
        heterogeneity: Gamma = F* - sum_i p_i F_i*.
        distance: |w^0 - w*|^2.
        gap: F(w^0) - F*.
        importance: p, (N,).

    >>> Problem(2.0, 0.5, importance=np.array([0.5, 0.5])).squares
    0.5
    """

    smoothness: float
    convexity: float = nan
    noise: float = nan
    gradient: float = nan
    heterogeneity: float = nan
    distance: float = nan
    gap: float = nan
    importance: Floats | None = None

    @property
    def squares(self) -> float:
        """S = sum_i p_i^2; nan without importance."""
        if self.importance is None:
            return nan
        return float(np.square(self.importance).sum())

    def strongly_convex(self) -> Assumption:
        """Return the assumption that every F_i is L-smooth and mu-strongly convex."""
        holds = self.convexity > 0 if isfinite(self.convexity) else None
        return Assumption("every client's loss is smooth and strongly convex", holds)

    def bounded(self) -> Assumption:
        """Return the assumption that G^2 and sigma^2 hold at all models of the run."""
        known = isfinite(self.gradient) and isfinite(self.noise)
        text = (
            "norm and variance of stochastic gradients stay below G² and σ² during "
            "the run"
        )
        return Assumption(text, None if known else False)
