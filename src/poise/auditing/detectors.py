"""Detectors: each adds up one kind of evidence about every client, and says how likely a working client looks so.

The null hypothesis of each is *a client that works*, drawn as weakly as it can be: its updates keep at least a
little direction from round to round, have at least a few large entries, … The p-value is the probability that such a
client looks as much like noise, or as empty, as this one does; it is 1 as long as there is nothing to go by.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import special

from poise.core.types import Floats, Ints

GAUSSIAN_RATIO = float(np.sqrt(2 / np.pi))
"""Geary's ratio mean|x| / rms of normal numbers."""

ALIKE = 1e-3
"""What is left of a copy, as a share of its length, at most."""

SMALLEST = 32
"""Parameters below which updates are too short to tell noise from work."""

NOISE_95 = 3.84
"""95 % of chi-squared numbers with one degree of freedom are below this."""


@dataclass(frozen=True)
class Sight:
    """What the server saw of m contributions in one round; one row each."""

    versions: Ints  # (m,)
    norms: Floats  # (m,)
    sketch: Floats  # (m, k)
    entries: int  # the first so many columns of the sketch are coordinates
    spread: Floats  # (m,) Geary's ratio
    looked_at: int  # of so many entries
    cohort: Floats  # (m,) cosine to what the others sent
    dimension: int  # entries of an update
    left: Floats  # (m, k) of the sketch, when all that the client can have copied is taken away
    copied: Ints  # (m,) in how many directions something could be taken away
    loss_before: Floats  # (m,) nan where none was reported
    loss_after: Floats

    @property
    def rests(self) -> NDArray[np.bool_]:
        """(m,) where something is left that is more than rounding."""
        left, length = (np.linalg.norm(v, axis=1) for v in (self.left, self.sketch))
        return np.asarray((self.copied > 0) & (left > ALIKE * length) & (self.dimension >= SMALLEST))


class Detector(Protocol):
    """Adds up one kind of evidence; clients are numbered by when they were first seen."""

    def grow(self, count: int) -> None:
        """Make room for so many clients."""

    def add(self, who: Ints, sight: Sight) -> None:
        """Take in one round; ``who`` may name a client twice."""

    def p_values(self) -> Floats:
        """How likely a working client looks so, (clients,)."""

    def words(self, who: int) -> str:
        """What was seen of one client, in words; empty where nothing was."""


class Columns:
    """Sums that are kept for every client."""

    def __init__(self, **shapes: tuple[int, ...]) -> None:
        self.values: dict[str, Floats] = {name: np.zeros((0, *shape)) for name, shape in shapes.items()}

    def grow(self, count: int) -> None:
        """Make room for so many clients; new ones begin at 0."""
        for name, old in self.values.items():
            if len(old) < count:
                self.values[name] = np.concatenate([old, np.zeros((count - len(old), *old.shape[1:]))])

    def add(self, name: str, who: Ints, what: Floats) -> None:
        """Add to some clients' sums."""
        np.add.at(self.values[name], who, what)

    def __getitem__(self, name: str) -> Floats:
        return self.values[name]


@dataclass
class Nothing:
    """Rounds in which a client sent nothing, or nothing but a multiple of what it had received itself.

    ``p = P(Binomial(rounds, rate) >= such rounds)``: a working client has such a round with probability ``rate``
    at most.
    """

    rate: float = 0.01
    empty: float = 1e-6  # as a share of the longest update of the round
    sums: Columns = field(default_factory=lambda: Columns(rounds=(), empty=(), copied=()))

    def grow(self, count: int) -> None:
        """Make room for so many clients."""
        self.sums.grow(count)

    def add(self, who: Ints, sight: Sight) -> None:
        """Count such rounds."""
        longest = sight.norms.max(initial=0.0)
        empty = (sight.norms <= self.empty * longest) & (longest > 0)  # where nobody moves, all is learned
        left, length = (np.linalg.norm(v, axis=1) for v in (sight.left, sight.sketch))
        copied = ~empty & (sight.copied > 0) & (left <= ALIKE * length)
        self.sums.add("rounds", who, np.ones(len(who)))
        self.sums.add("empty", who, empty.astype(float))
        self.sums.add("copied", who, copied.astype(float))

    def p_values(self) -> Floats:
        """The binomial tail."""
        found, rounds = self.sums["empty"] + self.sums["copied"], self.sums["rounds"]
        return at_least(found, rounds, self.rate)

    def words(self, who: int) -> str:
        """How often."""
        rounds, empty, copied = (int(self.sums[n][who]) for n in ("rounds", "empty", "copied"))
        said = [f"an empty update in {empty} of {rounds} rounds"] if empty else []
        return "; ".join(said + ([f"a copy of earlier steps in {copied} of {rounds} rounds"] if copied else []))


@dataclass
class Persistence:
    """How much of a client's direction comes back in its other rounds: ``mean over pairs of cos(Delta(s), Delta(t))``.

    Of T sketches of noise in k dimensions it is 0 with variance ``2 / (k T (T-1))``;
    ``p = Phi((found - least) / deviation)``, which is 1/2 after one round, where the deviation is infinite.
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
        return np.where(np.isnan(mean), unknown, special.ndtr((mean - self.least) / deviation))

    def words(self, who: int) -> str:
        """The mean cosine."""
        mean, _ = self.found()
        if len(mean) <= who or np.isnan(mean[who]):
            return ""
        what = "what it has not received" if self.of_rest else "its update"
        return f"{what} keeps no direction from round to round (mean cosine {mean[who]:+.3f})"


@dataclass
class Entries:
    """Whether the entries are those of noise: ``mean|x| / rms``, 0.798 for normal numbers, less for learned updates.

    Of n normal numbers it has variance ``(1 - 3/pi)/n``; ``p = 1 - Phi((found - most) / deviation)``, with
    ``wobble`` added to the deviation for what differs between rounds.
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
        return np.where(rounds > 0, special.ndtr((self.most - self.sums["total"] / seen) / deviation), 1.0)

    def words(self, who: int) -> str:
        """The ratio."""
        rounds = self.sums["rounds"][who]
        if not rounds:
            return ""
        ratio = self.sums["total"][who] / rounds
        what = "what it has not received" if self.of_rest else "its update"
        return f"{what} has the entries of normal noise (mean over rms {ratio:.3f}; noise {GAUSSIAN_RATIO:.3f})"


@dataclass
class Direction:
    """Whether its direction has to do with the cohort's: ``d * sum of cos^2`` to the sum of the others' updates.

    Of noise it is chi-squared with one degree of freedom per round; a working client has a mean cosine^2 of ``least^2``
    or more: then the mean is ``T (1 + d least^2)`` and the variance ``2 T + 4 T d least^2``; p is the normal tail.
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
        """The normal tail; 0 for a client that was always alone: then the cohort cannot vouch for it."""
        rounds, strength = self.sums["rounds"], self.dimension * self.least**2
        deviation = np.sqrt(np.maximum(2 * rounds + 4 * rounds * strength, 1.0))
        p = special.ndtr((self.sums["total"] - rounds * (1 + strength)) / deviation)
        return np.where(rounds > 0, p, np.where(self.sums["alone"] > 0, 0.0, 1.0))

    def words(self, who: int) -> str:
        """In how many rounds."""
        rounds = int(self.sums["rounds"][who])
        if not rounds:
            return ""
        return f"direction uncorrelated with the cohort in {int(self.sums['apart'][who])} of {rounds} rounds"


@dataclass
class Reports:
    """Losses that cannot have been computed: not changed by the work, or to the last bit those of another round.

    ``p = P(Binomial(reports, rate) >= such reports)``.
    """

    rate: float = 0.01
    sums: Columns = field(default_factory=lambda: Columns(rounds=(), odd=(), last=()))

    def grow(self, count: int) -> None:
        """Make room for so many clients."""
        self.sums.grow(count)

    def add(self, who: Ints, sight: Sight) -> None:
        """Count such reports."""
        told = ~np.isnan(sight.loss_before)
        again = (self.sums["rounds"][who] > 0) & (self.sums["last"][who] == sight.loss_before)
        same = sight.loss_before == sight.loss_after
        self.sums.add("rounds", who[told], np.ones(int(told.sum())))
        self.sums.add("odd", who[told], (again | same)[told].astype(float))
        self.sums["last"][who[told]] = sight.loss_before[told]

    def p_values(self) -> Floats:
        """The binomial tail."""
        odd, rounds = self.sums["odd"], self.sums["rounds"]
        return at_least(odd, rounds, self.rate)

    def words(self, who: int) -> str:
        """How often."""
        odd, rounds = int(self.sums["odd"][who]), int(self.sums["rounds"][who])
        return f"losses that were not computed in {odd} of {rounds} reports" if odd else ""


def at_least(count: Floats, trials: Floats, rate: float) -> Floats:
    """``P(Binomial(trials, rate) >= count)``; 1 where the count is 0.

    >>> at_least(np.array([0.0, 1.0, 2.0]), np.array([2.0, 2.0, 2.0]), 0.1).round(4).tolist()
    [1.0, 0.19, 0.01]
    """
    below = np.maximum(count - 1, 0).astype(np.int64)
    return np.where(count > 0, special.bdtrc(below, np.maximum(trials, 1).astype(np.int64), rate), 1.0)


def small_sample(n: int) -> float:
    """``E[mean|x| / rms] / sqrt(2/pi)`` of n normal numbers: ``sqrt(n/2) Gamma(n/2) / Gamma((n+1)/2)``.

    >>> round(small_sample(1) * GAUSSIAN_RATIO, 12), round(small_sample(10_000), 4)
    (1.0, 1.0)
    """
    return float(np.sqrt(n / 2) * np.exp(special.gammaln(n / 2) - special.gammaln((n + 1) / 2)))
