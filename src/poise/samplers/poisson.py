"""`Poisson`: every client works with a probability in proportion to its importance."""

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
    """Draw client i independently with probability m p_i, with ``omega_i = 1/m``.

    Var omega_i = p_i (1 - m p_i)/m, without covariance. Needs m p_i <= 1 for every
    client ([Fraboni 2023] prints the inequality the other way round).

    Args:
        m: expected number of clients per round.

    Source: [Fraboni 2023, App. A.1].

    >>> Poisson(1).statistics(np.array([0.5, 0.5])).variance
    array([0.25, 0.25])
    """

    m: int

    needs = frozenset[str]()

    def __post_init__(self) -> None:
        require(self.m >= 1, f"Poisson: m must be at least 1, not {self.m}", where="m")

    @property
    def traits(self) -> SamplerTraits:
        """Declare independent draws that do not depend on the clients' updates."""
        return SamplerTraits(independent=True, data_dependent=False, per_round=self.m)

    def fit(self, setting: Setting) -> None:
        """Refuse m for which a probability m p_i is above 1."""
        self._chances(setting.importance)

    def draw(
        self, setting: Setting, rng: np.random.Generator, round: int, past: History
    ) -> Cohort:
        """Draw each client with probability m p_i."""
        drawn = rng.random(setting.clients) < self.m * setting.importance
        clients = np.flatnonzero(drawn).astype(np.int64)
        return Cohort(clients, np.full(len(clients), 1 / self.m))

    def coins(self, importance: Floats) -> Coins:
        """Return the chances m p_i, at most 1, and the weights 1/m."""
        p = np.asarray(importance, dtype=np.float64)
        return Coins(np.minimum(1.0, self.m * p), np.full(len(p), 1 / self.m))

    def statistics(self, importance: Floats) -> WeightStatistics:
        """Return the closed forms of [Fraboni 2023, App. A.1]."""
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
            client = int(chances.argmax())
            raise IncompatibleParts(
                (
                    f"Poisson: client {client} would work with probability m p = "
                    f"{chances[client]:.3g}, above 1"
                ),
                f"choose m <= {int(1 / p.max())}, or MD({self.m})",
                where=("m",),
            )
        return np.minimum(chances, 1.0)
