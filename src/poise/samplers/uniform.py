"""`Uniform`: m clients without replacement, all equally likely."""

from __future__ import annotations

from typing import Literal

import numpy as np

from poise.core.errors import IncompatibleParts, require
from poise.core.history import History
from poise.core.parts import part
from poise.core.statistics import WeightStatistics, uniform_statistics
from poise.core.traits import SamplerTraits
from poise.core.types import Cohort, Floats, Setting


@part("sampler", "uniform")
class Uniform:
    """Draw m of N clients without replacement, with ``omega_i = (N/m) p_i``.

    E[omega_i] = p_i, Var omega_i = (N/m - 1) p_i^2 and Cov(omega_i, omega_j) = -alpha
    p_i p_j with alpha = (N - m)/(m (N - 1))  [Fraboni 2023, Table 2.1].

    Args:
        m: clients per round.
        absent: ``made-up`` gives the drawn clients the weight of the absent ones.
            ``keep`` is FedAvg's first rule [McMahan 2017], where absent clients count
            with the old model: ``omega_i = p_i``, so E[omega_i] = (m/N) p_i, and a
            round goes m/N of the way [Fraboni 2023, §3.1].

    >>> Uniform(1).statistics(np.array([0.5, 0.5])).variance
    array([0.25, 0.25])
    """

    m: int
    absent: Literal["made-up", "keep"] = "made-up"

    needs = frozenset[str]()

    def __post_init__(self) -> None:
        require(self.m >= 1, f"Uniform: m must be at least 1, not {self.m}", where="m")

    @property
    def traits(self) -> SamplerTraits:
        """Declare draws without replacement that do not depend on the clients' updates."""
        return SamplerTraits(
            data_dependent=False,
            absent_keep=self.absent == "keep",
            per_round=self.m,
            law="uniform",
        )

    def fit(self, setting: Setting) -> None:
        """Refuse m above the number of clients."""
        if self.m > setting.clients:
            raise IncompatibleParts(
                (
                    f"Uniform: m = {self.m} clients per round, but the federation has "
                    f"{setting.clients}"
                ),
                f"choose m <= {setting.clients}",
                where=("m",),
            )

    def draw(
        self, setting: Setting, rng: np.random.Generator, round: int, past: History
    ) -> Cohort:
        """Draw m distinct clients, ascending; O(m) time and memory for m much below N."""
        drawn = rng.choice(setting.clients, self.m, replace=False, shuffle=False)
        clients = np.sort(drawn).astype(np.int64)
        return Cohort(
            clients, setting.importance[clients] * self._scale(setting.clients)
        )

    def _scale(self, clients: int) -> float:
        """Return the factor from a drawn client's importance to its weight."""
        if self.absent == "made-up":
            return clients / self.m
        return 1.0

    def statistics(self, importance: Floats) -> WeightStatistics:
        """Return the closed forms of [Fraboni 2023, Table 2.1]."""
        # 1, or m/N if absent clients keep the old model
        share = self._scale(len(importance)) * self.m / len(importance)
        return uniform_statistics(importance, self.m, share=share)
