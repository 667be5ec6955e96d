"""`PowerOfChoice`: of d candidates, the m with the largest loss work."""

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
    """Draw d candidates by importance; the m with the largest loss work, ``omega_i = 1/m``.

    Candidates are drawn without replacement, with probabilities p. Biased towards
    clients with a high loss. The loss is the last one that the client reported, so a
    round costs one more number per working client. Clients that have not reported yet
    come first.

    Args:
        m: clients per round.
        d: candidates, at least m.

    Source: [Cho 2020].

    >>> setting = Setting(2, np.ones(2, int), np.array([0.5, 0.5]))
    >>> past = History(last_loss={0: 0.1, 1: 0.7})
    >>> PowerOfChoice(1, 2).draw(setting, np.random.default_rng(0), 1, past).clients
    array([1])
    """

    m: int
    d: int

    needs = frozenset({"loss_before"})

    def __post_init__(self) -> None:
        require(
            self.m >= 1, f"PowerOfChoice: m must be at least 1, not {self.m}", where="m"
        )
        require(
            self.d >= self.m,
            f"PowerOfChoice: d = {self.d} candidates for m = {self.m} clients",
            "choose d >= m",
            where="d",
        )

    @property
    def traits(self) -> SamplerTraits:
        """Declare draws that depend on reported losses."""
        return SamplerTraits(favours_losses=True, per_round=self.m)

    def fit(self, setting: Setting) -> None:
        """Refuse d above the number of clients with positive importance."""
        self._check(setting.importance)

    def _check(self, importance: Floats) -> None:
        available = int((importance > 0).sum())
        if self.d > available:
            raise IncompatibleParts(
                (
                    f"PowerOfChoice: d = {self.d} candidates, but {available} clients "
                    "with importance"
                ),
                f"choose d <= {available}",
                where=("d",),
            )

    def draw(
        self, setting: Setting, rng: np.random.Generator, round: int, past: History
    ) -> Cohort:
        """Draw candidates by importance and keep the largest losses; ties in order of the draw."""
        return self._worst(self._candidates(setting.importance, rng), past)

    def _candidates(self, p: Floats, rng: np.random.Generator) -> Ints:
        """Draw without replacement, as a race: client i arrives after an Exp(p_i) time."""
        with np.errstate(divide="ignore"):
            arrival = rng.standard_exponential(len(p)) / p
        first = np.argpartition(arrival, self.d - 1)[: self.d]
        return np.asarray(first[np.argsort(arrival[first])], dtype=np.int64)

    def _worst(self, candidates: Ints, past: History) -> Cohort:
        worst = np.argsort(-past.losses(candidates), kind="stable")[: self.m]
        return Cohort(np.sort(candidates[worst]), np.full(self.m, 1 / self.m))

    def statistics(
        self,
        importance: Floats,
        losses: Floats | None = None,
        draws: int = 100_000,
        seed: int = 0,
    ) -> WeightStatistics:
        """Estimate the statistics for these losses from ``draws`` draws; the mean is not p.

        There is no closed form.
        """
        p = np.asarray(importance, dtype=np.float64)
        self._check(p)
        last_loss: dict[int, float] = {}
        if losses is not None:
            last_loss = dict(enumerate(map(float, losses)))
        past = History(last_loss=last_loss)
        rng = np.random.default_rng(seed)
        mean = np.zeros(len(p))
        products = np.zeros((len(p), len(p)))
        for _ in range(draws):
            chosen = self._worst(self._candidates(p, rng), past).clients
            mean[chosen] += 1
            products[np.ix_(chosen, chosen)] += 1
        mean = mean / (draws * self.m)
        covariance = products / (draws * self.m**2) - np.outer(mean, mean)
        overlap = np.zeros(len(p))  # no known bound uses it
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

    def statistics_given(
        self, importance: Floats, known: ClientFacts
    ) -> WeightStatistics:
        """Estimate the statistics for the known losses."""
        return self.statistics(importance, known.losses, draws=known.draws)
