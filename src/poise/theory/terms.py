"""What a bound is made of: named terms, the assumptions under which it holds, and where it is
from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite, nan
from typing import Any

import numpy as np

from poise.core.errors import InvalidOption, suggest
from poise.core.types import Floats


@dataclass(frozen=True)
class Assumption:
    """A condition of a theorem; ``holds`` is None where it cannot be told from what was given."""

    text: str
    holds: bool | None = None


@dataclass(frozen=True)
class Terms:
    """The named terms of a bound, and their total.

    ``sharp`` is false where the source gives the terms only up to numerical constants: they can
    then be compared with each other over settings, but their total bounds nothing.

    >>> Terms("an example", "nowhere", {"start": 2.0, "noise": 0.5}).total
    2.5
    """

    name: str
    source: str
    values: Mapping[str, float]
    assumptions: tuple[Assumption, ...] = ()
    sharp: bool = True
    least: bool = (
        False  # the total is the smallest term, not their sum: a lower bound of the form min{a, b}
    )

    @property
    def total(self) -> float:
        """What the terms bound: their sum, or the smallest where the bound is a minimum."""
        return float(min(self.values.values()) if self.least else sum(self.values.values()))

    @property
    def holds(self) -> bool | None:
        """False where an assumption is known to be broken, None where one is not known to hold."""
        known = [a.holds for a in self.assumptions]
        return False if False in known else None if None in known else True

    def __getitem__(self, name: str) -> float:
        if name not in self.values:
            raise InvalidOption(f"{self.name} has no term {name!r}", suggest(name, self.values))
        return float(self.values[name])

    def as_data(self) -> dict[str, Any]:
        """The terms as plain values."""
        return {
            "name": self.name,
            "source": self.source,
            "terms": {k: float(v) for k, v in self.values.items()},
            "total": self.total,
            "up to constants": not self.sharp,
            "holds": self.holds,
            "assumptions": [{"text": a.text, "holds": a.holds} for a in self.assumptions],
        }


@dataclass(frozen=True)
class Problem:
    """The constants of a federated problem that the bounds speak of; nan for what is not known.

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
        """S = sum_i p_i^2; nan where the importance is not given."""
        return nan if self.importance is None else float(np.square(self.importance).sum())

    def strongly_convex(self) -> Assumption:
        """Every F_i is L-smooth and mu-strongly convex."""
        known = isfinite(self.convexity)
        return Assumption(
            "every client's loss is smooth and strongly convex",
            self.convexity > 0 if known else None,
        )

    def bounded(self) -> Assumption:
        """G^2 and sigma^2 hold everywhere the run goes."""
        known = isfinite(self.gradient) and isfinite(self.noise)
        text = (
            "norm and variance of stochastic gradients stay below G² and σ² wherever the run goes"
        )
        return Assumption(text, None if known else False)
