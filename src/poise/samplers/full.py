"""`Full`: every client works in every round."""

from __future__ import annotations

import numpy as np

from poise.core.errors import IncompatibleParts
from poise.core.history import History
from poise.core.parts import part
from poise.core.statistics import WeightStatistics
from poise.core.traits import SamplerTraits
from poise.core.types import Cohort, Floats, Setting


@part("sampler", "full")
class Full:
    """Select all clients, each with its importance: ``omega_i = p_i``.

    Source: [McMahan 2017] (C = 1).

    >>> Full().statistics(np.array([0.25, 0.75])).variance
    array([0., 0.])
    """

    needs = frozenset[str]()
    traits = SamplerTraits(selects_everyone=True, data_dependent=False)

    def fit(self, setting: Setting) -> None:
        """Refuse populations on demand, which are too large to work all at once."""
        if setting.on_demand:
            raise IncompatibleParts(
                (
                    f"Full: {setting.clients:,} clients are made on demand and cannot all work in "
                    "one round"
                ),
                "use Uniform(m)",
            )

    def draw(
        self, setting: Setting, rng: np.random.Generator, round: int, past: History
    ) -> Cohort:
        """Return all clients, in every round the same cohort."""
        everyone: Cohort = setting.once(
            "everyone",
            lambda: Cohort(
                np.arange(setting.clients), setting.importance.astype(np.float64)
            ),
        )
        return everyone

    def statistics(self, importance: Floats) -> WeightStatistics:
        """Return mean p and variance 0, as the draw is not random."""
        p = np.asarray(importance, dtype=np.float64)
        return WeightStatistics(
            p,
            np.zeros_like(p),
            alpha=0.0,
            sum_variance=0.0,
            expected_clients=float(len(p)),
        )
