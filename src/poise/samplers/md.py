"""`MD`: m independent draws with replacement, by importance."""

from __future__ import annotations

import numpy as np

from poise.core.errors import require
from poise.core.history import History
from poise.core.parts import part
from poise.core.sampling_distributions import cohort
from poise.core.statistics import WeightStatistics
from poise.core.traits import SamplerTraits
from poise.core.types import Cohort, Floats, Setting


@part("sampler", "md")
class MD:
    """m independent draws with probabilities p; ``omega_i = count_i/m`` (multinomial sampling).

    Var omega_i = p_i (1 - p_i)/m and Cov(omega_i, omega_j) = -p_i p_j/m. The weights
    always sum to one.

    Args:
        m: draws per round.
        independent_draws: a client drawn twice works twice, each time on other batches;
            otherwise it works once and counts twice.

    Source: [Fraboni 2023, §2.3, App. A.1.3].

    >>> MD(4).statistics(np.array([0.5, 0.5])).variance
    array([0.0625, 0.0625])
    """

    m: int
    independent_draws: bool = False

    needs = frozenset[str]()

    def __post_init__(self) -> None:
        require(self.m >= 1, f"MD: m must be at least 1, not {self.m}", where="m")

    @property
    def traits(self) -> SamplerTraits:
        """Declare draws with replacement that do not depend on the clients' updates."""
        return SamplerTraits(
            data_dependent=False,
            repeats_clients=self.independent_draws,
            per_round=self.m,
            law="multinomial",
        )

    def fit(self, setting: Setting) -> None:
        """Accept every federation: m may exceed the number of clients."""

    def draw(
        self, setting: Setting, rng: np.random.Generator, round: int, past: History
    ) -> Cohort:
        """Draw m clients from a table of cumulated importance: O(m log N)."""
        ends = setting.once("md", lambda: np.cumsum(setting.importance))
        drawn = np.searchsorted(ends, rng.random(self.m) * ends[-1], side="right")
        return cohort(np.minimum(drawn, setting.clients - 1), self.independent_draws)

    def statistics(self, importance: Floats) -> WeightStatistics:
        """Return the closed forms of [Fraboni 2023, Table 2.1]."""
        p = np.asarray(importance, dtype=np.float64)
        drawn = 1 - (1 - p) ** self.m
        return WeightStatistics(
            p,
            p * (1 - p) / self.m,
            alpha=1 / self.m,
            sum_variance=0.0,
            expected_clients=float(drawn.sum()),
        )
