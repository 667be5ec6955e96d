"""One client from each of the groups that an oracle knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from poise.core.capabilities import ClientFacts
from poise.core.errors import IncompatibleParts, require
from poise.core.history import History
from poise.core.parts import part
from poise.core.sampling_distributions import (
    SamplingDistributions,
    checked_sizes,
    cohort,
    distributions_by_group,
    units_of,
    whole_units,
)
from poise.core.statistics import WeightStatistics
from poise.core.traits import SamplerTraits
from poise.core.types import Cohort, Floats, Ints, Setting


@part("sampler", "target")
class Target:
    """Clustered sampling with groups that are given: what `ClusteredBySimilarity` should find;
    ``omega_i = count_i/m``.

    The m largest groups have one distribution each; what does not fit, and the clients of the other
    groups, fill the room that is left. Unbiased whatever the groups are.

    Args:
        m: distributions, and draws per round.
        groups: the group of each client, as whole numbers; ``"class"`` is the class of which a
            client has most.
        independent_draws: a client drawn twice works twice, on batches of its own each time.

    Source: [Fraboni 2023, §3.6].

    >>> Target(2, [0, 1, 0, 1]).distributions([1, 1, 1, 1])
    array([[0.5, 0. , 0.5, 0. ],
           [0. , 0.5, 0. , 0.5]])
    """

    m: int
    groups: Sequence[int] | Literal["class"]
    independent_draws: bool = False

    needs = frozenset[str]()

    def __post_init__(self) -> None:
        require(self.m >= 1, f"Target: m must be at least 1, not {self.m}", where="m")
        if self.groups != "class":
            whole_numbers = all(isinstance(g, int) and not isinstance(g, bool) for g in self.groups)
            require(
                len(self.groups) > 0 and whole_numbers,
                "Target: groups must be whole numbers, one per client",
                where="groups",
            )

    @property
    def traits(self) -> SamplerTraits:
        """Groups may be made from the clients' data."""
        return SamplerTraits(repeats_clients=self.independent_draws)

    def for_clients(self, stay: Sequence[int]) -> Self:
        """The groups of the clients that stay."""
        if self.groups == "class":
            return self
        return replace(self, groups=tuple(self.groups[c] for c in stay))

    def fit(self, setting: Setting) -> None:
        """One group per client."""
        if self.groups == "class":
            if setting.majority is None:
                raise IncompatibleParts(
                    "Target: the classes of the clients are not known",
                    "give groups as numbers",
                    where=("groups",),
                )
            return
        if len(self.groups) != setting.clients:
            raise IncompatibleParts(
                f"Target: {len(self.groups)} groups for {setting.clients} clients",
                "give the group of every client",
                where=("groups",),
            )

    def draw(self, setting: Setting, rng: np.random.Generator, round: int, past: History) -> Cohort:
        """One client from each distribution."""
        urns: SamplingDistributions = setting.once(
            self, lambda: self._urns(units_of(setting, self.m), setting.majority)
        )
        return cohort(urns.draw(rng), self.independent_draws)

    def distributions(self, sizes: ArrayLike, classes: Ints | None = None) -> Floats:
        """r_ki for these client sizes, (m, N): rows sum to 1, column i to m p_i; ``classes`` where
        groups need them.
        """
        n = checked_sizes(np.asarray(sizes), self.m)
        return self._urns(n, classes).distributions(len(n))

    def statistics(self, importance: Floats, classes: Ints | None = None) -> WeightStatistics:
        """The closed forms of [Fraboni 2023, App. A.1.7]; ``classes`` where groups need them."""
        return self._urns(whole_units(importance, self.m), classes).statistics(len(importance))

    def statistics_given(self, importance: Floats, known: ClientFacts) -> WeightStatistics:
        """The closed forms for the classes that are known."""
        return self.statistics(importance, known.majority)

    def _urns(self, units: Ints, classes: Ints | None) -> SamplingDistributions:
        groups = classes if self.groups == "class" else self.groups
        require(
            groups is not None,
            "Target: groups = 'class' needs the class of every client",
            "give classes=",
        )
        labels = np.asarray(groups)
        require(len(units) == len(labels), f"Target: {len(labels)} groups for {len(units)} clients")
        return distributions_by_group(
            units, [np.flatnonzero(labels == g) for g in np.unique(labels)], self.m
        )
