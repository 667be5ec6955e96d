"""m clients without replacement, all equally likely."""

from __future__ import annotations

import numpy as np

from poise.core.errors import IncompatibleParts, require
from poise.core.history import History
from poise.core.parts import part
from poise.core.statistics import WeightStatistics
from poise.core.types import Cohort, Floats, Setting


@part("sampler", "uniform")
class Uniform:
    """m of N clients without replacement; ``omega_i = (N/m) p_i`` for those drawn, so E[omega_i] = p_i.

    Var omega_i = (N/m - 1) p_i^2 and Cov(omega_i, omega_j) = -alpha p_i p_j with
    alpha = (N - m)/(m (N - 1))  (E, table 2.1).

    Args:
        m: clients per round.

    >>> Uniform(1).statistics(np.array([0.5, 0.5])).variance
    array([0.25, 0.25])
    """

    m: int

    needs = frozenset[str]()

    def __post_init__(self) -> None:
        require(self.m >= 1, f"Uniform: m must be at least 1, not {self.m}")

    def fit(self, setting: Setting) -> None:
        """No more clients can be drawn than there are."""
        if self.m > setting.clients:
            raise IncompatibleParts(
                f"Uniform: m = {self.m} clients per round, but the federation has {setting.clients}",
                f"choose m <= {setting.clients}",
            )

    def draw(self, setting: Setting, rng: np.random.Generator, round: int, past: History) -> Cohort:
        """M distinct clients, in ascending order. O(m) time and memory for m much below N."""
        clients = np.sort(rng.choice(setting.clients, self.m, replace=False, shuffle=False)).astype(np.int64)
        return Cohort(clients, setting.importance[clients] * (setting.clients / self.m))

    def statistics(self, importance: Floats) -> WeightStatistics:
        """The closed forms of E, table 2.1."""
        p = np.asarray(importance, dtype=np.float64)
        n, m, squares = len(p), self.m, float(p @ p)
        require(m <= n, f"Uniform: m = {m} clients per round, but there are {n}")
        alpha = (n - m) / (m * (n - 1)) if n > 1 else 0.0
        return WeightStatistics(
            p, (n / m - 1) * p**2, alpha=alpha, sum_variance=alpha * (n * squares - 1), expected_clients=float(m)
        )
