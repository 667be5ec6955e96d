"""`Binomial`: every client works with the same probability, independently."""

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
    """Draw each client independently with probability m/N, with ``omega_i = (N/m) p_i``.

    Var omega_i = ((N - m)/m) p_i^2, without covariance. The number of clients is
    random, m on average.

    Args:
        m: expected number of clients per round.

    Source: [Fraboni 2023, App. A.1].

    >>> Binomial(1).statistics(np.array([0.5, 0.5])).sum_variance
    0.5
    """

    m: int

    needs = frozenset[str]()

    def __post_init__(self) -> None:
        require(self.m >= 1, f"Binomial: m must be at least 1, not {self.m}", where="m")

    @property
    def traits(self) -> SamplerTraits:
        """Declare independent draws that do not depend on the clients' updates."""
        return SamplerTraits(independent=True, data_dependent=False, per_round=self.m)

    def fit(self, setting: Setting) -> None:
        """Refuse m above the number of clients."""
        if self.m > setting.clients:
            raise IncompatibleParts(
                (
                    f"Binomial: m = {self.m} clients per round, but the federation has "
                    f"{setting.clients}"
                ),
                f"choose m <= {setting.clients}",
                where=("m",),
            )

    def draw(
        self, setting: Setting, rng: np.random.Generator, round: int, past: History
    ) -> Cohort:
        """Draw the number of clients, then the clients: the same law as N coins, in O(m)."""
        n = setting.clients
        count = int(rng.binomial(n, self.m / n))
        clients = np.sort(rng.choice(n, count, replace=False, shuffle=False)).astype(
            np.int64
        )
        return Cohort(clients, setting.importance[clients] * (n / self.m))

    def coins(self, importance: Floats) -> Coins:
        """Return the chance ``m/N`` and the weight of every client."""
        p = self._checked(importance)
        return Coins(np.full(len(p), self.m / len(p)), p * len(p) / self.m)

    def statistics(self, importance: Floats) -> WeightStatistics:
        """Return the closed forms of [Fraboni 2023, App. A.1]."""
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
            self.m <= len(p),
            f"Binomial: m = {self.m} clients per round, but there are {len(p)}",
        )
        return p
