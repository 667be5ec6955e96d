"""`Optimal`: clients with longer updates work more often."""

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
"""The smallest norm that counts, as a share of the largest: a client with an update of
0 can be drawn again."""


@part("sampler", "optimal")
class Optimal:
    """Draw client i independently with probability q_i, with ``omega_i = p_i / q_i``.

    q minimises the variance of the aggregate for m expected clients [Chen 2020]: with
    u_i = p_i |Delta_i| in ascending order and l the largest integer with 0 < m + l - N
    <= (sum_{j<=l} u_(j)) / u_(l), q_i = (m + l - N) u_i / sum_{j<=l} u_(j) for the l
    smallest and 1 for the others. In the published method every client reports its norm
    in every round. Here the norm is that of the client's last update, which the server
    has anyway; a client that has not worked yet counts with the mean of the known
    norms. Unbiased for all norms.

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
        """Refuse m above the number of clients."""
        if self.m > setting.clients:
            raise IncompatibleParts(
                (
                    f"Optimal: m = {self.m} clients per round, but the federation has "
                    f"{setting.clients}"
                ),
                f"choose m <= {setting.clients}",
                where=("m",),
            )

    def draw(
        self, setting: Setting, rng: np.random.Generator, round: int, past: History
    ) -> Cohort:
        """Draw each client with a probability that grows with the norm of its last update."""
        q = self.probabilities(
            setting.importance * _filled(past.norms(setting.clients))
        )
        clients = np.flatnonzero(rng.random(setting.clients) < q).astype(np.int64)
        return Cohort(clients, setting.importance[clients] / q[clients])

    def probabilities(self, scores: Floats) -> Floats:
        """Return q_i for u_i = ``scores``, (N,), with sum m if at least m scores are above 0."""
        u = np.asarray(scores, dtype=np.float64)
        n = len(u)
        m = self.m
        require(m <= n, f"Optimal: m = {m} clients per round, but there are {n}")
        order = np.argsort(u, kind="stable")
        ascending = u[order]
        sums = np.cumsum(ascending)
        # expected clients among the l smallest scores
        room = m + np.arange(1, n + 1) - n
        fits = (room > 0) & (room * ascending <= sums * (1 + 1e-12))
        smallest = int(np.flatnonzero(fits)[-1]) + 1
        total = sums[smallest - 1]
        q = np.ones(n)
        if total > 0:
            q[order[:smallest]] = room[smallest - 1] * ascending[:smallest] / total
        else:
            q[order[:smallest]] = 0.0
        return np.minimum(q, 1.0)

    def statistics(
        self, importance: Floats, norms: Floats | None = None
    ) -> WeightStatistics:
        """Return the closed forms for these norms |Delta_i|; without norms, all are equal."""
        p = np.asarray(importance, dtype=np.float64)
        scores = p
        if norms is not None:
            scores = p * _filled(np.asarray(norms, dtype=np.float64))
        q = self.probabilities(scores)
        odds = np.divide(1 - q, q, out=np.zeros_like(q), where=q > 0)
        variance = odds * p**2
        return WeightStatistics(
            p,
            variance,
            alpha=0.0,
            sum_variance=float(variance.sum()),
            expected_clients=float(q.sum()),
        )

    def statistics_given(
        self, importance: Floats, known: ClientFacts
    ) -> WeightStatistics:
        """Return the closed forms for the known norms."""
        return self.statistics(importance, known.norms)


def _filled(norms: Floats) -> Floats:
    """Replace unknown norms by the mean norm; no norm is below `LEAST` of the largest."""
    known = norms[~np.isnan(norms)]
    if len(known) == 0 or known.max() == 0:
        return np.ones(len(norms))
    filled: Floats = np.maximum(
        np.where(np.isnan(norms), known.mean(), norms), LEAST * known.max()
    )
    return filled
