"""Those who moved most are asked most."""

from __future__ import annotations

import numpy as np

from poise.core.capabilities import ClientFacts
from poise.core.errors import IncompatibleParts, require
from poise.core.history import History
from poise.core.parts import part
from poise.core.statistics import WeightStatistics
from poise.core.traits import SamplerTraits
from poise.core.types import Cohort, Floats, Setting

LEAST = 0.01
"""No norm counts for less than this share of the largest: whoever stood still once must be able to
come back."""


@part("sampler", "optimal")
class Optimal:
    """Client i works with probability q_i, independently; ``omega_i = p_i / q_i`` for those who do.

    q minimises the variance of the aggregate for m expected clients [Chen 2020]: with u_i
    = p_i |Delta_i| in ascending order and l the largest integer with 0 < m + l - N <= (sum_{j<=l}
    u_(j)) / u_(l), q_i = (m + l - N) u_i / sum_{j<=l} u_(j) for the l smallest and 1 for the
    others. The published method has every client report its norm in every round; here the norm is
    that of a client's last update, which the server has anyway, and the mean of the known ones for
    a client that has not worked yet. Unbiased whatever the norms are.

    Args:
        m: expected number of clients per round.

    >>> Optimal(1).probabilities(np.array([3.0, 1.0]))
    array([0.75, 0.25])
    """

    m: int

    needs = frozenset[str]()
    traits = SamplerTraits(independent=True, uses_norms=True)

    def __post_init__(self) -> None:
        require(self.m >= 1, f"Optimal: m must be at least 1, not {self.m}", where="m")

    def fit(self, setting: Setting) -> None:
        """No more clients can work than there are."""
        if self.m > setting.clients:
            raise IncompatibleParts(
                (
                    f"Optimal: m = {self.m} clients per round, but the federation has "
                    f"{setting.clients}"
                ),
                f"choose m <= {setting.clients}",
                where=("m",),
            )

    def draw(self, setting: Setting, rng: np.random.Generator, round: int, past: History) -> Cohort:
        """One coin per client, loaded by the norm of its last update."""
        q = self.probabilities(setting.importance * _filled(past.norms(setting.clients)))
        clients = np.flatnonzero(rng.random(setting.clients) < q).astype(np.int64)
        return Cohort(clients, setting.importance[clients] / q[clients])

    def probabilities(self, scores: Floats) -> Floats:
        """q_i for u_i = ``scores``, (N,); they sum to m, unless fewer than m scores are above 0."""
        u = np.asarray(scores, dtype=np.float64)
        n, m = len(u), self.m
        require(m <= n, f"Optimal: m = {m} clients per round, but there are {n}")
        order = np.argsort(u, kind="stable")
        ascending, sums = u[order], np.cumsum(u[order])
        room = m + np.arange(1, n + 1) - n  # of the l smallest, when the others work for certain
        fits = (room > 0) & (room * ascending <= sums * (1 + 1e-12))
        smallest = int(np.flatnonzero(fits)[-1]) + 1
        q = np.ones(n)
        total = sums[smallest - 1]
        q[order[:smallest]] = (
            room[smallest - 1] * ascending[:smallest] / total if total > 0 else 0.0
        )
        return np.minimum(q, 1.0)

    def statistics(self, importance: Floats, norms: Floats | None = None) -> WeightStatistics:
        """The closed forms for known norms |Delta_i|; all equal where none are given."""
        p = np.asarray(importance, dtype=np.float64)
        q = self.probabilities(
            p if norms is None else p * _filled(np.asarray(norms, dtype=np.float64))
        )
        odds = np.divide(1 - q, q, out=np.zeros_like(q), where=q > 0)
        variance = odds * p**2
        return WeightStatistics(
            p,
            variance,
            alpha=0.0,
            sum_variance=float(variance.sum()),
            expected_clients=float(q.sum()),
        )

    def statistics_given(self, importance: Floats, known: ClientFacts) -> WeightStatistics:
        """The closed forms for the norms that are known."""
        return self.statistics(importance, known.norms)


def _filled(norms: Floats) -> Floats:
    """Norms that are not known are the mean of the known ones; none is below `LEAST` of the
    largest.
    """
    known = norms[~np.isnan(norms)]
    if len(known) == 0 or known.max() == 0:
        return np.ones(len(norms))
    filled: Floats = np.maximum(np.where(np.isnan(norms), known.mean(), norms), LEAST * known.max())
    return filled
