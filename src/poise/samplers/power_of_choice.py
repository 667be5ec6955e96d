"""Of d candidates, the m that are worst served."""

from __future__ import annotations

import numpy as np

from poise.core.capabilities import ClientFacts
from poise.core.errors import IncompatibleParts, require
from poise.core.history import History
from poise.core.parts import part
from poise.core.statistics import WeightStatistics
from poise.core.traits import SamplerTraits
from poise.core.types import Cohort, Floats, Ints, Setting


@part("sampler", "power-of-choice")
class PowerOfChoice:
    """d candidates without replacement, likelier the larger p_i; the m with the largest loss work;
    ``omega_i = 1/m``.

    Biased towards clients with a high loss. The loss is the one that a client reported when it last
    worked, so a round costs one more number per client that works; a client never heard of comes
    first.

    Args:
        m: clients per round.
        d: candidates, at least m.

    Source: [Cho 2020].

    >>> PowerOfChoice(1, 2).draw(Setting(2, np.ones(2, int), np.array([0.5, 0.5])), np.random.default_rng(0), 1,
    ...     History(last_loss={0: 0.1, 1: 0.7})).clients
    array([1])
    """

    m: int
    d: int

    needs = frozenset({"loss_before"})

    def __post_init__(self) -> None:
        require(self.m >= 1, f"PowerOfChoice: m must be at least 1, not {self.m}", where="m")
        require(
            self.d >= self.m,
            f"PowerOfChoice: d = {self.d} candidates for m = {self.m} clients",
            "choose d >= m",
            where="d",
        )

    @property
    def traits(self) -> SamplerTraits:
        """Who is asked depends on reported losses."""
        return SamplerTraits(favours_losses=True, per_round=self.m)

    def fit(self, setting: Setting) -> None:
        """There must be as many clients as candidates."""
        self._check(setting.importance)

    def _check(self, importance: Floats) -> None:
        some = int((importance > 0).sum())
        if self.d > some:
            raise IncompatibleParts(
                f"PowerOfChoice: d = {self.d} candidates, but {some} clients with importance",
                f"choose d <= {some}",
                where=("d",),
            )

    def draw(self, setting: Setting, rng: np.random.Generator, round: int, past: History) -> Cohort:
        """Candidates by importance, then the largest losses; equal ones in the order of the
        draw.
        """
        return self._keep(self._candidates(setting.importance, rng), past)

    def _candidates(self, p: Floats, rng: np.random.Generator) -> Ints:
        """Successive draws without replacement, as a race: client i arrives at an exponential time
        with rate p_i.
        """
        with np.errstate(divide="ignore"):
            arrival = rng.standard_exponential(len(p)) / p
        first = np.argpartition(arrival, self.d - 1)[: self.d]
        return np.asarray(first[np.argsort(arrival[first])], dtype=np.int64)

    def _keep(self, candidates: Ints, past: History) -> Cohort:
        worst = np.argsort(-past.losses(candidates), kind="stable")[: self.m]
        return Cohort(np.sort(candidates[worst]), np.full(self.m, 1 / self.m))

    def statistics(
        self, importance: Floats, losses: Floats | None = None, draws: int = 100_000, seed: int = 0
    ) -> WeightStatistics:
        """Estimated from ``draws`` draws for known losses, because there is no closed form; the
        mean is not p.
        """
        p = np.asarray(importance, dtype=np.float64)
        self._check(p)
        past = History(last_loss={} if losses is None else dict(enumerate(map(float, losses))))
        rng = np.random.default_rng(seed)
        mean, products = np.zeros(len(p)), np.zeros((len(p), len(p)))
        for _ in range(draws):
            chosen = self._keep(self._candidates(p, rng), past).clients
            mean[chosen] += 1
            products[np.ix_(chosen, chosen)] += 1
        mean = mean / (draws * self.m)
        covariance = products / (draws * self.m**2) - np.outer(mean, mean)
        overlap = np.zeros(len(p))  # no bound is known that would use it
        return WeightStatistics(
            mean,
            np.diag(covariance).copy(),
            alpha=None,
            sum_variance=0.0,
            expected_clients=float(self.m),
            pairwise=lambda: covariance,
            overlap=overlap,
            estimated=True,
        )

    def statistics_given(self, importance: Floats, known: ClientFacts) -> WeightStatistics:
        """Estimated for the losses that are known."""
        return self.statistics(importance, known.losses, known.draws)
