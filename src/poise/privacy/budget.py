"""The budget of a request to forget: what is promised, and how much noise may be spent on it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from poise.core.errors import IncompatibleParts
from poise.core.options import check_keys, check_options, option, options_of
from poise.core.traits import ServerTraits, SolverTraits, traits_of
from poise.privacy.gaussian import Calibration, check_budget, sensitivity_budget

if TYPE_CHECKING:
    from poise.core.protocols import Server, Solver
    from poise.core.sensitivity import Psi
    from poise.core.types import Floats

Participation = Literal["conservative", "optimistic"]


@dataclass(frozen=True)
class Budget:
    """(epsilon, delta), the noise to reach it with, and how sensitivities are counted.

    The fields are the keys of the table [unlearning]. Sensitivities fade by ``1 - eta (lambda +
    mu)`` with every local step where ``strong_convexity`` gives mu [Fraboni 2023, eq. 5.11], as far
    as the
    server follows its clients.

    >>> round(Budget(epsilon=10, delta=0.01, sigma=0.05).limit, 4)
    0.1428
    """

    epsilon: float = option(
        10.0, "epsilon of the guarantee.", above=0, inherits=True, label="epsilon"
    )
    delta: float = option(
        0.01, "delta of the guarantee.", above=0, below=1, inherits=True, label="delta"
    )
    sigma: float = option(
        0.05,
        "standard deviation of the noise (``last`` works out its own, ``dp`` had it while training).",
        least=0,
        inherits=True,
        label="Noise sigma",
    )
    calibration: Calibration = option(
        "analytic",
        "of the Gaussian mechanism, ``analytic`` or ``classical`` (for epsilon < 1).",
        inherits=True,
        advanced=True,
    )
    participation: Participation = option(
        "conservative",
        "how partial participation counts: ``conservative`` renormalises inside the cohort that really was, "
        "``optimistic`` takes ``p_c/(1 - p_c)`` whoever took part, which is smaller and no bound.",
        inherits=True,
        advanced=True,
    )
    strong_convexity: float | None = option(
        None,
        "mu of the clients' losses, where it is known.",
        least=0,
        inherits=True,
        advanced=True,
        example="unknown",
    )

    def __post_init__(self) -> None:
        check_options(self)
        check_budget(
            self.sigma, self.epsilon, self.delta, self.calibration, stacklevel=4
        )  # behind __init__

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Budget:
        """From the table [unlearning] of an experiment file."""
        check_keys(table, options_of(cls), "[unlearning]")
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

    def contraction(self, solver: Solver) -> float:
        """By how much one local step contracts: ``1 - eta (lambda + mu)``, or 1 where mu is not
        given.

        Raises where the corollary does not speak of this solver.
        """
        if self.strong_convexity is None:
            return 1.0
        traits = traits_of(solver, SolverTraits)
        if not traits.plain_gradient or traits.pull or not traits.constant_rate:
            raise IncompatibleParts(
                f"strong_convexity: sensitivities fade by a known factor under plain SGD, not under {solver!r}",
                "leave strong_convexity out",
            )
        factor = 1 - solver.rate(0) * (traits.weight_decay + self.strong_convexity)
        if not 0 <= factor < 1:
            raise IncompatibleParts(
                f"strong_convexity: 1 - eta (lambda + mu) = {factor:g} is no contraction",
                "eta (lambda + mu) must be above 0 and at most 1",
            )
        return float(factor)

    def tracker(self, solver: Solver, server: Server, importance: Floats) -> Psi:
        """An empty count of sensitivities, as this budget counts them."""
        from poise.core.sensitivity import (
            Psi,
        )  # here: commands read the options without loading numpy

        hopeful = importance if self.participation == "optimistic" else None
        rate = traits_of(server, ServerTraits).rate
        return Psi(self.contraction(solver), importance=hopeful, lr=1.0 if rate is None else rate)
