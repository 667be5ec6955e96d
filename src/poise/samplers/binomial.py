"""Everyone flips the same coin."""

from __future__ import annotations

import numpy as np

from poise.core.capabilities import Coins
from poise.core.errors import IncompatibleParts, require
from poise.core.history import History
from poise.core.parts import part
from poise.core.statistics import WeightStatistics
from poise.core.traits import SamplerTraits
from poise.core.types import Cohort, Floats, Setting


@part("sampler", "binomial")
class Binomial:
    """Each client works with probability m/N, independently; ``omega_i = (N/m) p_i`` for those who
    do.

    Var omega_i = ((N - m)/m) p_i^2, no covariance; the number of clients is random, m on average.

    Args:
        m: expected number of clients per round.

    Source: E appendix A.1.

    >>> Binomial(1).statistics(np.array([0.5, 0.5])).sum_variance
    0.5
    """

    m: int

    needs = frozenset[str]()

    def __post_init__(self) -> None:
        require(self.m >= 1, f"Binomial: m must be at least 1, not {self.m}", where="m")

    @property
    def traits(self) -> SamplerTraits:
        """One coin per client, whatever the clients sent."""
        return SamplerTraits(independent=True, data_dependent=False, per_round=self.m)

    def fit(self, setting: Setting) -> None:
        """A probability is at most one."""
        if self.m > setting.clients:
            raise IncompatibleParts(
                (
                    f"Binomial: m = {self.m} clients per round, but the federation has "
                    f"{setting.clients}"
                ),
                f"choose m <= {setting.clients}",
                where=("m",),
            )

    def draw(self, setting: Setting, rng: np.random.Generator, round: int, past: History) -> Cohort:
        """First how many work, then who: the same law as N coins, in O(m)."""
        n = setting.clients
        many = int(rng.binomial(n, self.m / n))
        clients = np.sort(rng.choice(n, many, replace=False, shuffle=False)).astype(np.int64)
        return Cohort(clients, setting.importance[clients] * (n / self.m))

    def coins(self, importance: Floats) -> Coins:
        """The same chance for everyone, ``m/N``."""
        p = self._checked(importance)
        return Coins(np.full(len(p), self.m / len(p)), p * len(p) / self.m)

    def statistics(self, importance: Floats) -> WeightStatistics:
        """The closed forms of E, appendix A.1."""
        p = self._checked(importance)
        variance = (len(p) - self.m) / self.m * p**2
        return WeightStatistics(
            p,
            variance,
            alpha=0.0,
            sum_variance=float(variance.sum()),
            expected_clients=float(self.m),
        )

    def _checked(self, importance: Floats) -> Floats:
        p = np.asarray(importance, dtype=np.float64)
        require(
            self.m <= len(p), f"Binomial: m = {self.m} clients per round, but there are {len(p)}"
        )
        return p
