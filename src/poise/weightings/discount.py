"""`Discount`: stale updates count less."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from poise.core.capabilities import KnowsMeanCoefficients, LongRun
from poise.core.errors import require
from poise.core.parts import is_part, part
from poise.core.protocols import Weighting
from poise.core.traits import WeightingTraits, still_holds, traits_of
from poise.core.types import Floats, Setting
from poise.core.weights import by_columns, weigh
from poise.weightings.renumbering import inner_for

if TYPE_CHECKING:
    from poise.core.round_updates import RoundUpdates


@part("weighting", "discount")
class Discount:
    """``c_i = s(n - rho_i) w_i``: a weighting times a factor that falls with staleness.

    ``polynomial``: s(t) = (1 + t)^-a. ``hinge``: s(t) = 1 up to t = b, then 1/(a (t -
    b) + 1). The weights are not renormalised.

    Args:
        of: the weighting that gives w_i.
        kind: ``polynomial`` or ``hinge``.
        a: how fast the factor falls, above 0.
        b: staleness up to which there is no discount (hinge).

    Source: [Xie 2019].

    >>> from poise.weightings import Proportional
    >>> Discount(Proportional()).coefficients(np.ones(2), versions=np.array([5, 2]), round=5)
    array([1. , 0.5])
    """

    of: Any
    kind: Literal["polynomial", "hinge"] = "polynomial"
    a: float = 0.5
    b: float = 4.0

    def __post_init__(self) -> None:
        require(
            is_part(self.of) and self.of.slot == "weighting",
            f"Discount: {self.of!r} is not a weighting",
            where="of",
        )
        require(
            self.a > 0 and isfinite(self.a),
            f"Discount: a must be above 0, not {self.a}",
            where="a",
        )
        require(
            self.b >= 0 and isfinite(self.b),
            f"Discount: b must be 0 or more, not {self.b}",
            where="b",
        )

    @property
    def needs(self) -> frozenset[str]:
        """The reports that the inner weighting needs."""
        needs: frozenset[str] = self.of.needs
        return needs

    @property
    def traits(self) -> WeightingTraits:
        """Declare the traits of the inner weighting that the factor keeps."""
        inner = traits_of(self.of, WeightingTraits)
        return WeightingTraits(
            reads_updates=inner.reads_updates,
            continuous=inner.continuous,
            per_step=inner.per_step,
        )

    @property
    def inner(self) -> Weighting:
        """The weighting that gives w_i."""
        inner: Weighting = self.of
        return inner

    def for_clients(self, stay: Sequence[int]) -> Self:
        """Return the weighting for the clients that stay."""
        return replace(self, of=inner_for(self.of, stay))

    def fit(self, setting: Setting) -> None:
        """Refuse settings that the inner weighting refuses."""
        self.of.fit(setting)

    @by_columns
    def coefficients(self, updates: RoundUpdates) -> Floats:
        """Return the inner coefficients times the factor of each staleness."""
        stale = updates.staleness.astype(np.float64)
        if self.kind == "polynomial":
            factor = (1 + stale) ** -self.a
        else:
            factor = 1 / (self.a * np.maximum(stale - self.b, 0.0) + 1)
        return np.asarray(weigh(self.of, updates) * factor, dtype=np.float64)

    def mean_coefficients(self, known: LongRun) -> Floats | None:
        """Return those of the inner weighting if the clock waits: nothing is stale."""
        inner = self.inner
        if not known.clock.waits or not isinstance(inner, KnowsMeanCoefficients):
            return None
        if not still_holds(inner, "mean_coefficients"):
            return None
        return inner.mean_coefficients(known)
