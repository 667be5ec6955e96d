"""`PerStep`: clients that make more local steps count no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from poise.core.errors import InvalidOption, require
from poise.core.parts import is_part, part
from poise.core.protocols import Weighting
from poise.core.traits import WeightingTraits, traits_of
from poise.core.types import Floats, Setting
from poise.core.weights import by_columns, weigh
from poise.weightings.proportional import Proportional
from poise.weightings.renumbering import inner_for

if TYPE_CHECKING:
    from poise.core.round_updates import RoundUpdates


@part("weighting", "per-step")
class PerStep:
    """``c_i = w_i L/(K_i eta_i)``: every update counts as if its path had length L.

    A client that makes K_i local steps of size eta_i moves about K_i eta_i times its
    gradient, so that the weights w_i alone minimise ``sum_i w_i K_i eta_i L_i``
    (objective inconsistency). The weights are not renormalised. The correction is exact
    for plain steps and small rates; momentum and `Prox` make other paths.

    Args:
        of: the weighting that gives w_i.
        path: L; None for the mean of K_i eta_i over the updates of the aggregation, by
            w_i (FedNova). A clock that does not wait needs a number, such as the median
            K times eta, because a single update is its own mean.

    Source: [Wang 2020]; client-specific K and eta in [Fraboni 2023, §4.4.5].

    Two clients with 1 and 3 steps have paths 0.1 and 0.3, with mean 0.2:

    >>> columns = {"steps": np.array([1, 3]), "rates": np.array([0.1, 0.1])}
    >>> PerStep().coefficients(np.array([0.5, 0.5]), **columns).round(3).tolist()
    [1.0, 0.333]
    """

    of: Any = Proportional()
    path: float | None = None

    def __post_init__(self) -> None:
        require(
            is_part(self.of) and self.of.slot == "weighting",
            f"PerStep: {self.of!r} is not a weighting",
            where="of",
        )
        require(
            self.path is None or (self.path > 0 and isfinite(self.path)),
            f"PerStep: path must be above 0, not {self.path}",
            where="path",
        )

    @property
    def needs(self) -> frozenset[str]:
        """The reports that the inner weighting needs."""
        needs: frozenset[str] = self.of.needs
        return needs

    @property
    def traits(self) -> WeightingTraits:
        """Declare that unequal local work is compensated for."""
        inner = traits_of(self.of, WeightingTraits)
        return WeightingTraits(
            reads_updates=inner.reads_updates,
            continuous=inner.continuous,
            times=inner.times,
            per_step=True,
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
        """Return the inner coefficients times L over each path."""
        weights = weigh(self.of, updates)
        paths = np.asarray(updates.steps * updates.rates, dtype=np.float64)
        if not (paths > 0).all():
            raise InvalidOption(
                "PerStep: a client made no step, or its learning rate is 0",
                "give the schedule an end above 0",
                where=("weighting",),
            )
        length = self.path
        if length is None:
            total = float(weights.sum())
            length = float(weights @ paths) / total if total > 0 else 1.0
        return np.asarray(weights * length / paths, dtype=np.float64)
