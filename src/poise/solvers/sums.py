"""`Sums`: every client sends the sums over its samples, once."""

from __future__ import annotations

import numpy as np

from poise.core.parts import part
from poise.core.protocols import StepRule
from poise.core.traits import SolverTraits
from poise.core.types import Ints, Setting
from poise.core.vectors import Stack


@part("solver", "sums")
class Sums:
    """Send ``S_i / n_i``, the client's sums per sample: ``Delta_i = S_i / n_i - theta``.

    This is one gradient step of rate 1 on ``|theta - S_i / n_i|^2 / 2``, so the updates of
    one round with all clients, weights p_i and the server `Add` give
    ``theta = sum_i p_i S_i / n_i``, from any theta. The task must have sums (`poise.ridge`).

    >>> Sums().steps_for(np.array([100, 120]))
    array([1, 1])
    """

    batch_size = None
    traits = SolverTraits(
        gradient_steps=True,
        constant_rate=True,
        sends_only_updates=True,
        ignores_start=True,
    )

    def fit(self, setting: Setting) -> None:
        """Accept every setting; the parts together check that the task has sums."""

    def steps_for(self, sizes: Ints) -> Ints:
        """Return 1 for every client."""
        return np.ones(len(sizes), dtype=np.int64)

    def rule(self, start: Stack, version: int) -> StepRule:
        """Return the plain step of rate 1."""
        return StepRule(self.rate(version))

    def rate(self, version: int) -> float:
        """Return 1."""
        return 1.0
