"""Detectors that tell isotropic noise from what was learned."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp, lgamma, sqrt

import numpy as np

from poise.auditing.detector import SMALLEST, Columns, Sight
from poise.auditing.tail_probabilities import normal
from poise.core.types import Floats, Ints

GAUSSIAN_RATIO = float(np.sqrt(2 / np.pi))
"""Geary's ratio mean|x| / rms of normal numbers."""

NOISE_95 = 3.84
"""95 % of chi-squared numbers with one degree of freedom are below this."""


@dataclass
class Persistence:
    """How much of a client's direction comes back in its other rounds: ``mean over pairs of
    cos(Delta(s), Delta(t))``.

    Of T sketches of noise in k dimensions it is 0 with variance ``2 / (k T (T-1))``;
    ``p = Phi((found - least) / deviation)``, which is 1/2 after one round, where the deviation is
    infinite.
    """

    least: float = 0.1
    of_rest: bool = False
    sums: Columns | None = None
    width: int = 0

    def grow(self, count: int) -> None:
        """Make room for so many clients."""
        if self.sums is not None:
            self.sums.grow(count)

    def add(self, who: Ints, sight: Sight) -> None:
        """Add up unit vectors."""
        vectors = sight.left if self.of_rest else sight.sketch
        if self.sums is None:
            self.width, self.sums = vectors.shape[1], Columns(rounds=(), total=(vectors.shape[1],))
        self.sums.grow(int(who.max(initial=-1)) + 1)
        length = np.linalg.norm(vectors, axis=1)
        usable = sight.rests if self.of_rest else length > 0
        units = vectors[usable] / length[usable, None]
        self.sums.add("rounds", who[usable], np.ones(int(usable.sum())))
        self.sums.add("total", who[usable], units)

    def found(self) -> tuple[Floats, Floats]:
        """The mean over pairs and its deviation, were it noise; nan below two rounds."""
        if self.sums is None:
            return np.zeros(0), np.zeros(0)
        rounds = self.sums["rounds"]
        pairs = np.where(rounds > 1, rounds * (rounds - 1), np.nan)
        mean = ((self.sums["total"] ** 2).sum(axis=1) - rounds) / pairs
        return mean, np.sqrt(2 / (self.width * pairs))

    def p_values(self) -> Floats:
        """The normal tail."""
        mean, deviation = self.found()
        unknown = np.where(self.sums["rounds"] > 0, 0.5, 1.0) if self.sums is not None else mean
        return np.where(np.isnan(mean), unknown, normal((mean - self.least) / deviation))

    def words(self, who: int) -> str:
        """The mean cosine."""
        mean, _ = self.found()
        if len(mean) <= who or np.isnan(mean[who]):
            return ""
        what = "what it has not received" if self.of_rest else "its update"
        return f"{what} keeps no direction from round to round (mean cosine {mean[who]:+.3f})"


@dataclass
class Entries:
    """Whether the entries are those of noise: ``mean|x| / rms``, 0.798 for normal numbers, less for
    learned updates.

    Of n normal numbers it has variance ``(1 - 3/pi)/n``; ``p = 1 - Phi((found - most) /
    deviation)``, with ``wobble`` added to the deviation for what differs between rounds.
    """

    most: float = 0.76
    wobble: float = 0.003
    of_rest: bool = False
    sums: Columns = field(default_factory=lambda: Columns(rounds=(), total=()))
    numbers: int = 0

    def grow(self, count: int) -> None:
        """Make room for so many clients."""
        self.sums.grow(count)

    def add(self, who: Ints, sight: Sight) -> None:
        """Add up ratios."""
        self.numbers = sight.entries if self.of_rest else sight.looked_at
        ratio, usable = sight.spread, (sight.spread > 0) & (sight.dimension >= SMALLEST)
        if self.of_rest:
            shown = np.abs(sight.left[:, : sight.entries])
            size = np.sqrt((shown**2).mean(axis=1))
            usable = sight.rests & (size > 0)
            ratio = shown.mean(axis=1) / np.where(usable, size, 1.0) / small_sample(sight.entries)
        self.sums.add("rounds", who[usable], np.ones(int(usable.sum())))
        self.sums.add("total", who[usable], ratio[usable])

    def p_values(self) -> Floats:
        """The normal tail."""
        rounds = self.sums["rounds"]
        seen = np.maximum(rounds, 1)
        deviation = np.sqrt((1 - 3 / np.pi) / (seen * max(self.numbers, 1)) + self.wobble**2)
        return np.where(
            rounds > 0, normal((self.most - self.sums["total"] / seen) / deviation), 1.0
        )

    def words(self, who: int) -> str:
        """The ratio."""
        rounds = self.sums["rounds"][who]
        if not rounds:
            return ""
        ratio = self.sums["total"][who] / rounds
        what = "what it has not received" if self.of_rest else "its update"
        return (
            f"{what} has the entries of normal noise (mean over rms {ratio:.3f}; noise "
            f"{GAUSSIAN_RATIO:.3f})"
        )


@dataclass
class Direction:
    """Whether its direction has to do with the cohort's: ``d * sum of cos^2`` to the sum of the
    others' updates.

    Of noise it is chi-squared with one degree of freedom per round; a working client has a mean
    cosine^2 of ``least^2`` or more: then the mean is ``T (1 + d least^2)`` and the variance ``2 T +
    4 T d least^2``; p is the normal tail.
    """

    least: float = 0.05
    sums: Columns = field(default_factory=lambda: Columns(rounds=(), total=(), apart=(), alone=()))
    dimension: int = 1

    def grow(self, count: int) -> None:
        """Make room for so many clients."""
        self.sums.grow(count)

    def add(self, who: Ints, sight: Sight) -> None:
        """Add up squares."""
        self.dimension = sight.dimension
        usable = ~np.isnan(sight.cohort)
        square = sight.dimension * sight.cohort[usable].astype(float) ** 2
        self.sums.add("rounds", who[usable], np.ones(int(usable.sum())))
        self.sums.add("total", who[usable], square)
        self.sums.add("apart", who[usable], (square < NOISE_95).astype(float))
        self.sums.add("alone", who[~usable], np.ones(int((~usable).sum())))

    def p_values(self) -> Floats:
        """The normal tail; 0 for a client that was always alone: then the cohort cannot vouch for
        it.
        """
        rounds, strength = self.sums["rounds"], self.dimension * self.least**2
        deviation = np.sqrt(np.maximum(2 * rounds + 4 * rounds * strength, 1.0))
        p = normal((self.sums["total"] - rounds * (1 + strength)) / deviation)
        return np.where(rounds > 0, p, np.where(self.sums["alone"] > 0, 0.0, 1.0))

    def words(self, who: int) -> str:
        """In how many rounds."""
        rounds = int(self.sums["rounds"][who])
        if not rounds:
            return ""
        return (
            f"direction uncorrelated with the cohort in {int(self.sums['apart'][who])} of "
            f"{rounds} rounds"
        )


@dataclass
class Layers:
    """Whether all layers have the same scale, as noise has: ``deviation over layers of log rms``,
    mean over rounds.

    Of noise it is at most about ``wobble``, ``1/sqrt(2 n)`` for a layer of which n = 32 entries are
    looked at; ``p = Phi((found - least) / (wobble / sqrt(T)))``.
    """

    least: float = 0.25
    wobble: float = 0.125
    sums: Columns = field(default_factory=lambda: Columns(rounds=(), total=(), alone=()))

    def grow(self, count: int) -> None:
        """Make room for so many clients."""
        self.sums.grow(count)

    def add(self, who: Ints, sight: Sight) -> None:
        """Add up deviations."""
        usable = (sight.layers > 0).all(axis=1) & (sight.layers.shape[1] > 1)
        apart = (
            np.log(sight.layers[usable].astype(float)).std(axis=1) if usable.any() else np.zeros(0)
        )
        self.sums.add("rounds", who[usable], np.ones(int(usable.sum())))
        self.sums.add("total", who[usable], apart)
        self.sums.add("alone", who[~usable], np.ones(int((~usable).sum())))

    def p_values(self) -> Floats:
        """The normal tail; 0 where there is one layer only: it cannot vouch for anyone."""
        rounds = self.sums["rounds"]
        seen = np.maximum(rounds, 1)
        p = normal((self.sums["total"] / seen - self.least) / (self.wobble / np.sqrt(seen)))
        return np.where(rounds > 0, p, np.where(self.sums["alone"] > 0, 0.0, 1.0))

    def words(self, who: int) -> str:
        """How far apart."""
        rounds = self.sums["rounds"][who]
        return (
            f"all layers have one scale (to {100 * self.sums['total'][who] / rounds:.0f} %)"
            if rounds
            else ""
        )


def small_sample(n: int) -> float:
    """``E[mean|x| / rms] / sqrt(2/pi)`` of n normal numbers: ``sqrt(n/2) Gamma(n/2) /
    Gamma((n+1)/2)``.

    >>> round(small_sample(1) * GAUSSIAN_RATIO, 12), round(small_sample(10_000), 4)
    (1.0, 1.0)
    """
    return sqrt(n / 2) * exp(lgamma(n / 2) - lgamma((n + 1) / 2))
