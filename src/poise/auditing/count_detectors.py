"""Detectors that count rounds in which a client did what one that works hardly ever does."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from poise.auditing.detector import ALIKE, Columns, Sight
from poise.auditing.tail_probabilities import at_least
from poise.core.types import Floats, Ints


@dataclass
class Nothing:
    """Rounds in which a client sent nothing, or nothing but a multiple of what it had received
    itself.

    ``p = P(Binomial(rounds, rate) >= such rounds)``: a working client has such a round with
    probability ``rate`` at most.
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
        empty = (sight.norms <= self.empty * longest) & (
            longest > 0
        )  # where nobody moves, all is learned
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
        return "; ".join(
            said + ([f"a copy of earlier steps in {copied} of {rounds} rounds"] if copied else [])
        )


@dataclass
class Reports:
    """Losses that cannot have been computed: not changed by the work, or to the last bit those of
    another round.

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
