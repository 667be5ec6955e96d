"""Everyone flips a coin of its own, loaded by importance."""

from __future__ import annotations

import numpy as np

from poise.core.capabilities import Coins
from poise.core.errors import IncompatibleParts, require
from poise.core.history import History
from poise.core.parts import part
from poise.core.statistics import WeightStatistics
from poise.core.traits import SamplerTraits
from poise.core.types import Cohort, Floats, Setting


@part("sampler", "poisson")
class Poisson:
    """Client i works with probability m p_i, independently; ``omega_i = 1/m`` for those who do.

    Var omega_i = p_i (1 - m p_i)/m, no covariance. Needs m p_i <= 1 for every client (E prints the
    inequality the other way round).

    Args:
        m: expected number of clients per round.

    Source: E appendix A.1.

    >>> Poisson(1).statistics(np.array([0.5, 0.5])).variance
    array([0.25, 0.25])
    """

    m: int

    needs = frozenset[str]()

    def __post_init__(self) -> None:
        require(self.m >= 1, f"Poisson: m must be at least 1, not {self.m}", where="m")

    @property
    def traits(self) -> SamplerTraits:
        """One coin per client, whatever the clients sent."""
        return SamplerTraits(independent=True, data_dependent=False, per_round=self.m)

    def fit(self, setting: Setting) -> None:
        """A probability is at most one."""
        self._chances(setting.importance)

    def draw(self, setting: Setting, rng: np.random.Generator, round: int, past: History) -> Cohort:
        """One coin per client."""
        clients = np.flatnonzero(rng.random(setting.clients) < self.m * setting.importance).astype(
            np.int64
        )
        return Cohort(clients, np.full(len(clients), 1 / self.m))

    def coins(self, importance: Floats) -> Coins:
        """Chances by importance, cut at 1, as `draw` cuts them."""
        p = np.asarray(importance, dtype=np.float64)
        return Coins(np.minimum(1.0, self.m * p), np.full(len(p), 1 / self.m))

    def statistics(self, importance: Floats) -> WeightStatistics:
        """The closed forms of E, appendix A.1."""
        p = np.asarray(importance, dtype=np.float64)
        chances = self._chances(p)
        variance = p * (1 - chances) / self.m
        return WeightStatistics(
            p,
            variance,
            alpha=0.0,
            sum_variance=float(variance.sum()),
            expected_clients=float(chances.sum()),
        )

    def _chances(self, p: Floats) -> Floats:
        chances = self.m * p
        if chances.max() > 1 + 1e-12:
            who = int(chances.argmax())
            raise IncompatibleParts(
                (
                    f"Poisson: client {who} would work with probability m p = {chances[who]:.3g}, "
                    "above 1"
                ),
                f"choose m <= {int(1 / p.max())}, or MD({self.m})",
                where=("m",),
            )
        return np.minimum(chances, 1.0)
