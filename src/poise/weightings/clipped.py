"""Updates that are too long count less."""

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
    """``c_i = w_i min(1, C/|Delta_i|)``: as if every update had been shortened to length C first;
    not renormalised.

    What a client adds to the direction is then at most ``w_i C`` long, whatever its data; with a
    `Noisy` server this is DP-FedAvg.

    Args:
        norm: C, above 0; inf clips nothing.
        of: the weighting that gives w_i.

    Source: McMahan et al. 2018, Algorithm 1 (flat clipping); E appendix D.4.

    >>> Clipped(norm=2.0).coefficients(np.array([0.5, 0.5]), norms=np.array([1.0, 8.0]))
    array([0.5  , 0.125])
    """

    norm: float
    of: Any = Proportional()

    def __post_init__(self) -> None:
        require(self.norm > 0, f"Clipped: norm must be above 0, not {self.norm}", where="norm")
        require(
            is_part(self.of) and self.of.slot == "weighting",
            f"Clipped: {self.of!r} is not a weighting",
            where="of",
        )

    @property
    def needs(self) -> frozenset[str]:
        """What the other weighting needs."""
        found: frozenset[str] = self.of.needs
        return found

    @property
    def traits(self) -> WeightingTraits:
        """Those of the other weighting, and every update is at most C long."""
        other = traits_of(self.of, WeightingTraits)
        return WeightingTraits(
            proportional=other.proportional, shortens_to=self.norm, continuous=other.continuous
        )

    @property
    def inner(self) -> Weighting:
        """The other weighting."""
        inner: Weighting = self.of
        return inner

    def for_clients(self, stay: Sequence[int]) -> Self:
        """The other weighting for the clients that stay."""
        return replace(self, of=inner_for(self.of, stay))

    def fit(self, setting: Setting) -> None:
        """The other weighting must fit."""
        self.of.fit(setting)

    @by_columns
    def coefficients(self, updates: RoundUpdates) -> Floats:
        """The other weighting's, times C/|Delta_i| where the update is longer than C."""
        length = np.asarray(updates.norms, dtype=np.float64)
        if np.isnan(length).any():
            raise InvalidOption(
                "Clipped: the norms of the updates are not given", "norms=, one per row"
            )
        factor = np.ones_like(length)
        np.divide(self.norm, length, out=factor, where=length > self.norm)
        return np.asarray(weigh(self.of, updates) * factor, dtype=np.float64)
