"""The budget of a request to forget: what is promised, and how much noise may be spent on it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from math import isfinite
from typing import Any, Literal

from poise.core.errors import IncompatibleParts, require, suggest
from poise.core.sensitivity import Psi
from poise.core.types import Floats
from poise.unlearning.gaussian import Calibration, check_budget, sensitivity_budget

Participation = Literal["conservative", "optimistic"]


@dataclass(frozen=True)
class Budget:
    """(epsilon, delta), the noise to reach it with, and how sensitivities are counted.

    Args:
        epsilon: above 0.
        delta: between 0 and 1.
        sigma: standard deviation of the noise on the restart model.
        calibration: of the Gaussian mechanism (see `sensitivity_budget`).
        participation: ``conservative`` renormalises inside the cohort that really was; ``optimistic`` takes
            ``p_c/(1 - p_c)`` whoever took part, which is smaller and no bound.
        strong_convexity: mu of the clients' losses, where it is known; sensitivities then fade by
            ``1 - eta (lambda + mu)`` with every local step (E eq. 5.11), as far as the server follows its clients.

    >>> round(Budget(epsilon=10, delta=0.01, sigma=0.05).limit, 4)
    0.1428
    """

    epsilon: float = 10.0
    delta: float = 0.01
    sigma: float = 0.05
    calibration: Calibration = "analytic"
    participation: Participation = "conservative"
    strong_convexity: float | None = None

    def __post_init__(self) -> None:
        known = ("conservative", "optimistic")
        require(self.participation in known, f"participation = {self.participation!r}", f"known: {', '.join(known)}")
        mu = self.strong_convexity
        fits = mu is None or (isinstance(mu, int | float) and not isinstance(mu, bool) and mu >= 0 and isfinite(mu))
        require(fits, f"strong_convexity must be 0 or more, not {mu!r}")
        check_budget(self.sigma, self.epsilon, self.delta, self.calibration, stacklevel=4)  # behind __init__

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Budget:
        """From the table [unlearning] of an experiment file."""
        known = [f.name for f in fields(cls)]
        for key in table:
            require(key in known, f"[unlearning] has no key {key!r}", suggest(key, known))
        return cls(**table)

    @property
    def limit(self) -> float:
        """Psi*."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # said when the budget was made
            return sensitivity_budget(self.sigma, self.epsilon, self.delta, self.calibration)

    def table(self) -> dict[str, Any]:
        """The options, as an experiment file holds them."""
        return {k: v for k, v in asdict(self).items() if v is not None}

    def contraction(self, solver: Any) -> float:
        """By how much one local step contracts: ``1 - eta (lambda + mu)``, or 1 where mu is not given.

        Raises where the corollary does not speak of this solver.
        """
        if self.strong_convexity is None:
            return 1.0
        name = type(solver).__name__
        plain = name == "SGD" and solver.momentum == 0 and solver.clip is None and solver.decay == 1
        if not plain:
            raise IncompatibleParts(
                f"strong_convexity: sensitivities fade by a known factor under plain SGD, not under {solver!r}",
                "leave strong_convexity out",
            )
        factor = 1 - solver.lr * (solver.weight_decay + self.strong_convexity)
        if not 0 <= factor < 1:
            raise IncompatibleParts(
                f"strong_convexity: 1 - eta (lambda + mu) = {factor:g} is no contraction",
                "eta (lambda + mu) must be above 0 and at most 1",
            )
        return float(factor)

    def tracker(self, solver: Any, server: Any, importance: Floats) -> Psi:
        """An empty count of sensitivities, as this budget counts them."""
        hopeful = importance if self.participation == "optimistic" else None
        return Psi(self.contraction(solver), importance=hopeful, lr=getattr(server, "lr", 1.0))
