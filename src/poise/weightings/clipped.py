"""`Clipped`: long updates count less, as if they were shortened first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
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


@part("weighting", "clipped")
class Clipped:
    """``c_i = w_i min(1, C/|Delta_i|)``: every update is shortened to length C first.

    A client's contribution to the direction is at most ``w_i C`` long, for all data.
    The weights are not renormalised. With a `Noisy` server this is DP-FedAvg.

    Args:
        norm: C, above 0; inf shortens no update.
        of: the weighting that gives w_i.

    Source: [McMahan 2018, Alg. 1] (flat clipping); [Fraboni 2023, App. D.4].

    >>> Clipped(norm=2.0).coefficients(np.array([0.5, 0.5]), norms=np.array([1.0, 8.0]))
    array([0.5  , 0.125])
    """

    norm: float
    of: Any = Proportional()

    def __post_init__(self) -> None:
        require(
            self.norm > 0,
            f"Clipped: norm must be above 0, not {self.norm}",
            where="norm",
        )
        require(
            is_part(self.of) and self.of.slot == "weighting",
            f"Clipped: {self.of!r} is not a weighting",
            where="of",
        )

    @property
    def needs(self) -> frozenset[str]:
        """The reports that the inner weighting needs."""
        needs: frozenset[str] = self.of.needs
        return needs

    @property
    def traits(self) -> WeightingTraits:
        """Declare the traits that clipping keeps, and the length C."""
        inner = traits_of(self.of, WeightingTraits)
        return WeightingTraits(
            proportional=inner.proportional,
            shortens_to=self.norm,
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
        """Return the inner coefficients, times C/|Delta_i| if |Delta_i| > C."""
        length = np.asarray(updates.norms, dtype=np.float64)
        if np.isnan(length).any():
            raise InvalidOption(
                "Clipped: the norms of the updates are missing",
                "pass norms=, one per row",
            )
        factor = np.ones_like(length)
        np.divide(self.norm, length, out=factor, where=length > self.norm)
        return np.asarray(weigh(self.of, updates) * factor, dtype=np.float64)
