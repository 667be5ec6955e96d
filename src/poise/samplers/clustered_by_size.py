"""`ClusteredBySize`: one client from each of m groups of equal weight, cut by size."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from poise.core.errors import require
from poise.core.history import History
from poise.core.parts import part
from poise.core.sampling_distributions import (
    SamplingDistributions,
    checked_sizes,
    cohort,
    distributions_by_size,
    units_of,
    whole_units,
)
from poise.core.statistics import WeightStatistics
from poise.core.traits import SamplerTraits
from poise.core.types import Cohort, Floats, Setting


@part("sampler", "clustered-by-size")
class ClusteredBySize:
    """One client from each of m distributions, cut by client size; ``omega_i = count_i/m``.

    The sampler lays the clients end to end, largest first, and cuts the line into m
    distributions r_k. Unbiased; Var omega_i = p_i/m - sum_k r_ki^2/m^2 is never above
    that of `MD`, and every client is at least as likely to be drawn. If importance is
    not proportional to size, importance replaces size.

    Args:
        m: number of sampling distributions, and draws per round.
        independent_draws: a client drawn twice works twice, each time on other batches.

    Source: [Fraboni 2023, §3.4, Alg. 2] (in whole numbers, with the errors of the
    printed text corrected).

    >>> ClusteredBySize(2).distributions([3, 2, 1]).round(3)
    array([[1.   , 0.   , 0.   ],
           [0.   , 0.667, 0.333]])
    """

    m: int
    independent_draws: bool = False

    needs = frozenset[str]()

    def __post_init__(self) -> None:
        require(
            self.m >= 1,
            f"ClusteredBySize: m must be at least 1, not {self.m}",
            where="m",
        )

    @property
    def traits(self) -> SamplerTraits:
        """Declare draws that depend on the clients' sizes alone."""
        return SamplerTraits(
            data_dependent=False, repeats_clients=self.independent_draws
        )

    def fit(self, setting: Setting) -> None:
        """Compute the sampling distributions once; every federation fits."""
        self._sampling_distributions(setting)

    def draw(
        self, setting: Setting, rng: np.random.Generator, round: int, past: History
    ) -> Cohort:
        """Draw one client from each distribution, from a table: O(m log N)."""
        return cohort(
            self._sampling_distributions(setting).draw(rng), self.independent_draws
        )

    def distributions(self, sizes: ArrayLike) -> Floats:
        """Return r_ki, (m, N), for these client sizes: rows sum to 1, column i to m p_i."""
        n = checked_sizes(np.asarray(sizes), self.m)
        return distributions_by_size(n, self.m).distributions(len(n))

    def statistics(self, importance: Floats) -> WeightStatistics:
        """Return the closed forms of [Fraboni 2023, App. A.1.7]."""
        return distributions_by_size(
            whole_units(importance, self.m), self.m
        ).statistics(len(importance))

    def _sampling_distributions(self, setting: Setting) -> SamplingDistributions:
        sampling_distributions: SamplingDistributions = setting.once(
            self, lambda: distributions_by_size(units_of(setting, self.m), self.m)
        )
        return sampling_distributions
