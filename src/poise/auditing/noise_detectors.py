"""Detectors that tell isotropic noise from learned updates."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp, lgamma, sqrt

import numpy as np

from poise.auditing.detector import SMALLEST, AuditedRound, ClientSums
from poise.auditing.tail_probabilities import normal
from poise.core.types import Floats, Ints

GAUSSIAN_RATIO = float(np.sqrt(2 / np.pi))
"""Geary's ratio mean|x| / rms of normal numbers."""

NOISE_95 = 3.84
"""95 % of chi-squared numbers with one degree of freedom are below this."""

UPDATE = "its update"
RESIDUAL = "its update without the received part"


@dataclass
class Persistence:
    """Tests whether a client's direction persists: ``mean over pairs of cos(Delta(s), Delta(t))``.

    For T sketches of noise in k dimensions it is 0 with variance ``2 / (k T (T-1))``;
    ``p = Phi((mean - least) / deviation)``, which is 1/2 after one round, where the
    deviation is infinite. ``of_residual`` tests the part of the update that the client
    cannot have copied.
    """

    least: float = 0.1
    of_residual: bool = False
    sums: ClientSums | None = None
    width: int = 0

    def grow(self, count: int) -> None:
        """Make room for this many clients."""
        if self.sums is not None:
            self.sums.grow(count)

    def add(self, clients: Ints, audited: AuditedRound) -> None:
        """Add up unit vectors."""
        vectors = audited.sketch
        if self.of_residual:
            vectors = audited.residual
        if self.sums is None:
            self.width = vectors.shape[1]
            self.sums = ClientSums(rounds=(), total=(self.width,))
        self.sums.grow(int(clients.max(initial=-1)) + 1)
        length = np.linalg.norm(vectors, axis=1)
        usable = length > 0
        if self.of_residual:
            usable = audited.has_residual
        units = vectors[usable] / length[usable, None]
        self.sums.count("rounds", clients[usable])
        self.sums.add("total", clients[usable], units)

    def mean_cosines(self) -> tuple[Floats, Floats]:
        """Return the mean over pairs and its deviation; nan below two rounds."""
        if self.sums is None:
            return np.zeros(0), np.zeros(0)
        rounds = self.sums["rounds"]
        pairs = np.where(rounds > 1, rounds * (rounds - 1), np.nan)
        mean = ((self.sums["total"] ** 2).sum(axis=1) - rounds) / pairs
        return mean, np.sqrt(2 / (self.width * pairs))

    def p_values(self) -> Floats:
        """The normal tail."""
        if self.sums is None:
            return np.zeros(0)
        mean, deviation = self.mean_cosines()
        unknown = np.where(self.sums["rounds"] > 0, 0.5, 1.0)
        return np.where(
            np.isnan(mean), unknown, normal((mean - self.least) / deviation)
        )

    def describe(self, client: int) -> str:
        """Describe the mean cosine."""
        mean, _ = self.mean_cosines()
        if len(mean) <= client or np.isnan(mean[client]):
            return ""
        subject = RESIDUAL if self.of_residual else UPDATE
        return f"{subject} keeps no direction from round to round (mean cosine {mean[client]:+.3f})"


@dataclass
class EntryRatio:
    """Tests whether the entries are normal noise, by ``mean|x| / rms``.

    The ratio is 0.798 for normal numbers, and less for learned updates. For n normal
    numbers it has variance ``(1 - 3/pi)/n``;
    ``p = 1 - Phi((mean - most) / deviation)``, with ``wobble`` added to the deviation
    for differences between rounds. ``of_residual`` tests the part of the update that
    the client cannot have copied.
    """

    most: float = 0.76
    wobble: float = 0.003
    of_residual: bool = False
    sums: ClientSums = field(default_factory=lambda: ClientSums(rounds=(), total=()))
    numbers: int = 0

    def grow(self, count: int) -> None:
        """Make room for this many clients."""
        self.sums.grow(count)

    def add(self, clients: Ints, audited: AuditedRound) -> None:
        """Add up ratios."""
        if self.of_residual:
            self.numbers = audited.entries
            shown = np.abs(audited.residual[:, : audited.entries])
            size = np.sqrt((shown**2).mean(axis=1))
            usable = audited.has_residual & (size > 0)
            ratio = shown.mean(axis=1) / np.where(usable, size, 1.0)
            ratio = ratio / small_sample(audited.entries)
        else:
            self.numbers = audited.inspected
            ratio = audited.geary
            usable = (ratio > 0) & (audited.dimension >= SMALLEST)
        self.sums.count("rounds", clients[usable])
        self.sums.add("total", clients[usable], ratio[usable])

    def p_values(self) -> Floats:
        """The normal tail."""
        rounds = self.sums["rounds"]
        divisor = np.maximum(rounds, 1)
        deviation = np.sqrt(
            (1 - 3 / np.pi) / (divisor * max(self.numbers, 1)) + self.wobble**2
        )
        p = normal((self.most - self.sums["total"] / divisor) / deviation)
        return np.where(rounds > 0, p, 1.0)

    def describe(self, client: int) -> str:
        """Describe the ratio."""
        rounds = self.sums["rounds"][client]
        if not rounds:
            return ""
        ratio = self.sums["total"][client] / rounds
        subject = RESIDUAL if self.of_residual else UPDATE
        return (
            f"{subject} has the entries of normal noise (mean over rms {ratio:.3f}; noise "
            f"{GAUSSIAN_RATIO:.3f})"
        )


@dataclass
class CohortDirection:
    """Tests whether a client's direction is related to the cohort's: ``d * sum of cos^2``.

    The cosines are to the sum of the others' updates. For noise the sum is chi-squared
    with one degree of freedom per round. A working client has a mean cosine^2 of
    ``least^2`` or more: then the mean is ``T (1 + d least^2)`` and the variance
    ``2 T + 4 T d least^2``; p is the normal tail.
    """

    least: float = 0.05
    sums: ClientSums = field(
        default_factory=lambda: ClientSums(rounds=(), total=(), apart=(), alone=())
    )
    dimension: int = 1

    def grow(self, count: int) -> None:
        """Make room for this many clients."""
        self.sums.grow(count)

    def add(self, clients: Ints, audited: AuditedRound) -> None:
        """Add up squares."""
        self.dimension = audited.dimension
        usable = ~np.isnan(audited.cohort)
        square = audited.dimension * audited.cohort[usable].astype(float) ** 2
        self.sums.count("rounds", clients[usable])
        self.sums.add("total", clients[usable], square)
        self.sums.add("apart", clients[usable], (square < NOISE_95).astype(float))
        self.sums.count("alone", clients[~usable])

    def p_values(self) -> Floats:
        """The normal tail; 0 for a client that never had a cohort beside it."""
        rounds = self.sums["rounds"]
        strength = self.dimension * self.least**2
        deviation = np.sqrt(np.maximum(2 * rounds + 4 * rounds * strength, 1.0))
        p = normal((self.sums["total"] - rounds * (1 + strength)) / deviation)
        unknown = np.where(self.sums["alone"] > 0, 0.0, 1.0)
        return np.where(rounds > 0, p, unknown)

    def describe(self, client: int) -> str:
        """Describe in how many rounds the direction was unrelated."""
        rounds = int(self.sums["rounds"][client])
        if not rounds:
            return ""
        apart = int(self.sums["apart"][client])
        return f"direction uncorrelated with the cohort in {apart} of {rounds} rounds"


@dataclass
class LayerScales:
    """Tests whether all layers have one scale, as noise has.

    The statistic is the ``deviation over layers of log rms``, mean over rounds. For
    noise it is at most about ``wobble``, ``1/sqrt(2 n)`` for a layer with n = 32
    inspected entries; ``p = Phi((mean - least) / (wobble / sqrt(T)))``.
    """

    least: float = 0.25
    wobble: float = 0.125
    sums: ClientSums = field(
        default_factory=lambda: ClientSums(rounds=(), total=(), alone=())
    )

    def grow(self, count: int) -> None:
        """Make room for this many clients."""
        self.sums.grow(count)

    def add(self, clients: Ints, audited: AuditedRound) -> None:
        """Add up deviations."""
        usable = (audited.layers > 0).all(axis=1) & (audited.layers.shape[1] > 1)
        deviation = np.zeros(0)
        if usable.any():
            deviation = np.log(audited.layers[usable].astype(float)).std(axis=1)
        self.sums.count("rounds", clients[usable])
        self.sums.add("total", clients[usable], deviation)
        self.sums.count("alone", clients[~usable])

    def p_values(self) -> Floats:
        """The normal tail; 0 for a single layer, which cannot clear a client."""
        rounds = self.sums["rounds"]
        divisor = np.maximum(rounds, 1)
        mean = self.sums["total"] / divisor
        p = normal((mean - self.least) / (self.wobble / np.sqrt(divisor)))
        unknown = np.where(self.sums["alone"] > 0, 0.0, 1.0)
        return np.where(rounds > 0, p, unknown)

    def describe(self, client: int) -> str:
        """Describe how far the scales differ."""
        rounds = self.sums["rounds"][client]
        if not rounds:
            return ""
        percent = 100 * self.sums["total"][client] / rounds
        return f"all layers have one scale (to {percent:.0f} %)"


def small_sample(n: int) -> float:
    """Return ``E[mean|x| / rms] / sqrt(2/pi)`` of n normal numbers.

    It is ``sqrt(n/2) Gamma(n/2) / Gamma((n+1)/2)``.

    >>> round(small_sample(1) * GAUSSIAN_RATIO, 12), round(small_sample(10_000), 4)
    (1.0, 1.0)
    """
    return sqrt(n / 2) * exp(lgamma(n / 2) - lgamma((n + 1) / 2))
