"""`Covering`: m clients per round, so that every client works once in N/m rounds."""

from __future__ import annotations

import numpy as np

from poise.core.errors import IncompatibleParts, require
from poise.core.history import History
from poise.core.parts import part
from poise.core.statistics import WeightStatistics, uniform_statistics
from poise.core.traits import SamplerTraits
from poise.core.types import Cohort, Floats, Setting


@part("sampler", "covering")
class Covering:
    """Draw the m clients asked least often so far, ties at random; ``omega_i = (N/m) p_i``.

    After ceil(N/m) rounds the server has asked every client. No two clients differ by
    more than one request. Over all draws, a single round has the law of `Uniform`:
    every cohort of m clients is equally likely, so the closed forms of
    [Fraboni 2023, Table 2.1] hold for each round. The rounds of a run depend on each
    other: a client that worked comes back last.

    An audit of r rounds has seen min(r m, N) clients instead of the
    ``N (1 - (1 - m/N)^r)`` that `Uniform` reaches on average.

    Args:
        m: clients per round.

    >>> setting = Setting(4, np.ones(4, int), np.full(4, 1 / 4))
    >>> past = History(asked={0: 1, 2: 1})
    >>> Covering(2).draw(setting, np.random.default_rng(0), 1, past)
    Cohort(clients=array([1, 3]), weights=array([0.5, 0.5]))
    """

    m: int

    needs = frozenset[str]()

    def __post_init__(self) -> None:
        require(self.m >= 1, f"Covering: m must be at least 1, not {self.m}", where="m")

    @property
    def traits(self) -> SamplerTraits:
        """Declare draws that depend on earlier draws, but not on the updates."""
        return SamplerTraits(
            data_dependent=False,
            remembers_draws=True,
            per_round=self.m,
            law="uniform",
        )

    def fit(self, setting: Setting) -> None:
        """Refuse m above the number of clients."""
        if self.m > setting.clients:
            raise IncompatibleParts(
                f"Covering: m = {self.m} clients per round, but the federation has "
                f"{setting.clients}",
                f"choose m <= {setting.clients}",
                where=("m",),
            )

    def draw(
        self, setting: Setting, rng: np.random.Generator, round: int, past: History
    ) -> Cohort:
        """Draw the m clients with the fewest requests; O(N) time and memory."""
        asked = np.zeros(setting.clients, dtype=np.int64)
        asked[list(past.asked)] = list(past.asked.values())
        order = np.lexsort((rng.permutation(setting.clients), asked))
        clients = np.sort(order[: self.m]).astype(np.int64)
        weights = setting.importance[clients] * (setting.clients / self.m)
        return Cohort(clients, weights)

    def statistics(self, importance: Floats) -> WeightStatistics:
        """Return the closed forms of one round, which are those of `Uniform`."""
        return uniform_statistics(importance, self.m)
