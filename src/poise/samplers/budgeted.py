"""`Budgeted`: another sampler, without the clients whose sensitivity is used up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from poise.core.capabilities import PerClient
from poise.core.errors import IncompatibleParts, errors_at, require
from poise.core.history import History
from poise.core.parts import is_part, part
from poise.core.protocols import Sampler
from poise.core.sensitivity import SENSITIVITY
from poise.core.traits import SamplerTraits, traits_of
from poise.core.types import Cohort, Setting
from poise.samplers.full import Full

HINT = "declare [unlearning], or give limit, or epsilon, delta and sigma"


@part("sampler", "budgeted")
class Budgeted:
    """Draw as another sampler, then leave out clients whose sensitivity Psi_i is used up.

    Client i is asked while ``Psi_i + largest <= Psi*``; ``largest`` is the largest
    contribution of any client to its sensitivity in any round so far (0 before the
    first round). The other clients keep their base weights: a client that is left out
    counts with the old model, and the weights of the round sum to less. Rescaled
    weights would spend the sensitivities of the others faster. The cohort may be empty;
    the round then changes nothing. If sensitivities fade (``strong_convexity`` of the
    budget), a client is asked again once it is below the limit.

    Guarantee: while no contribution is larger than every contribution before it, all
    Psi_i stay within Psi*, and an unlearning request (``sifu``) for any clients
    restarts from the newest model. It fails if a client moves the model further in one
    round than any client in any earlier round. So nothing protects the first round: Psi*
    should be many times the contributions of one round. It also fails if the
    coefficients of a round add up to so much that all sensitivities grow: more than
    ``(K + 1)/K`` with K local steps.
    Sensitivities count anew in every branch of a history of requests.

    Who is left out depends on what the clients sent. The objective therefore drifts
    towards the clients that move the model little, and a certificate has to assume that
    the same others would have been left out without the forgotten client.

    Args:
        of: the sampler that draws.
        limit: Psi*. If the run declares a budget [unlearning], the smaller of both
            counts, and ``limit`` may be left out.
        epsilon: with ``delta`` and ``sigma`` instead of ``limit``: Psi* is the limit of
            this budget.
        delta: of that budget.
        sigma: of that budget.

    Source: sensitivities and Psi*, [Fraboni 2023, eq. 5.8, Thm 5.1].

    >>> from poise.core.sensitivity import Psi
    >>> setting = Setting(3, np.ones(3, int), np.full(3, 1 / 3))
    >>> past = History(psi=Psi(values={0: 0.5, 1: 0.9}, largest=0.2))
    >>> Budgeted(limit=1.0).draw(setting, np.random.default_rng(0), 4, past).clients
    array([0, 2])
    """

    of: Any = Full()
    limit: float | None = None
    epsilon: float | None = None
    delta: float | None = None
    sigma: float | None = None

    def __post_init__(self) -> None:
        require(
            is_part(self.of) and self.of.slot == "sampler",
            f"Budgeted: {self.of!r} is not a sampler",
            where="of",
        )
        require(
            self.limit is None or self.limit >= 0,
            f"Budgeted: limit must be at least 0, not {self.limit}",
            where="limit",
        )
        require(
            len(self.guarantee) in (0, 3),
            f"Budgeted: {', '.join(self.guarantee)} alone gives no limit",
            "give epsilon, delta and sigma",
            where="epsilon",
        )
        require(
            self.limit is None or not self.guarantee,
            "Budgeted: limit and epsilon, delta, sigma are both given",
            "give one of them",
            where="limit",
        )

    @property
    def guarantee(self) -> Mapping[str, float]:
        """Its own epsilon, delta and sigma; empty if they are not given."""
        given = {"epsilon": self.epsilon, "delta": self.delta, "sigma": self.sigma}
        return {name: value for name, value in given.items() if value is not None}

    def within(self, limit: float) -> Self:
        """Return the sampler with this limit Psi*."""
        return replace(self, limit=limit, epsilon=None, delta=None, sigma=None)

    @property
    def needs(self) -> frozenset[str]:
        """The sensitivities, and what the inner sampler needs."""
        needs: frozenset[str] = self.of.needs
        return needs | {SENSITIVITY}

    @property
    def measure(self) -> Any:
        """The measure of similarity of an inner sampler that compares updates."""
        return self.of.measure

    @property
    def traits(self) -> SamplerTraits:
        """Declare the traits that leaving out clients keeps; draws depend on updates."""
        inner = traits_of(self.of, SamplerTraits)
        return SamplerTraits(
            data_dependent=True,
            repeats_clients=inner.repeats_clients,
            uses_norms=inner.uses_norms,
            favours_losses=inner.favours_losses,
            absent_keep=inner.absent_keep,
            per_round=inner.per_round,
        )

    @property
    def inner(self) -> Sampler:
        """The sampler that draws."""
        inner: Sampler = self.of
        return inner

    def for_clients(self, stay: Sequence[int]) -> Self:
        """Return the sampler for the clients that stay."""
        if isinstance(self.of, PerClient):
            return replace(self, of=self.of.for_clients(stay))
        return self

    def fit(self, setting: Setting) -> None:
        """Refuse settings that the inner sampler refuses, and an unknown limit."""
        with errors_at("of"):
            self.of.fit(setting)
        self._known_limit()

    def draw(
        self, setting: Setting, rng: np.random.Generator, round: int, past: History
    ) -> Cohort:
        """Draw as the inner sampler; drop the clients that could exceed the limit."""
        cohort: Cohort = self.of.draw(setting, rng, round, past)
        spent = np.array([past.psi.of(c) for c in cohort.clients.tolist()])
        within = spent + past.psi.largest <= self._known_limit()
        if within.all():
            return cohort
        return Cohort(cohort.clients[within], cohort.weights[within])

    def _known_limit(self) -> float:
        if self.limit is None:
            raise IncompatibleParts(
                "Budgeted: the limit of the sensitivities is not known",
                HINT,
                where=("name",),
            )
        return self.limit
