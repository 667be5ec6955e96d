"""Detectors that count rounds with behaviour that working clients hardly ever show."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from poise.auditing.detector import ALIKE, AuditedRound, ClientSums
from poise.auditing.tail_probabilities import at_least
from poise.core.types import Floats, Ints


@dataclass
class EmptyUpdates:
    """Counts rounds in which a client sent nothing, or a multiple of what it received.

    ``p = P(Binomial(rounds, rate) >= such rounds)``: a working client has such a round
    with probability ``rate`` at most.
    """

    rate: float = 0.01
    empty: float = 1e-6  # as a share of the longest update of the round
    sums: ClientSums = field(
        default_factory=lambda: ClientSums(rounds=(), empty=(), copied=())
    )

    def grow(self, count: int) -> None:
        """Make room for this many clients."""
        self.sums.grow(count)

    def add(self, clients: Ints, audited: AuditedRound) -> None:
        """Count empty and copied updates."""
        longest = audited.norms.max(initial=0.0)
        # Where no client moves, the model has converged: then no update counts as
        # empty.
        empty = (audited.norms <= self.empty * longest) & (longest > 0)
        residual = np.linalg.norm(audited.residual, axis=1)
        length = np.linalg.norm(audited.sketch, axis=1)
        copied = ~empty & (audited.copied > 0) & (residual <= ALIKE * length)
        self.sums.count("rounds", clients)
        self.sums.add("empty", clients, empty.astype(float))
        self.sums.add("copied", clients, copied.astype(float))

    def p_values(self) -> Floats:
        """The binomial tail."""
        count = self.sums["empty"] + self.sums["copied"]
        return at_least(count, self.sums["rounds"], self.rate)

    def describe(self, client: int) -> str:
        """Describe how often the updates were empty or copied."""
        rounds = int(self.sums["rounds"][client])
        empty = int(self.sums["empty"][client])
        copied = int(self.sums["copied"][client])
        sentences = []
        if empty:
            sentences.append(f"an empty update in {empty} of {rounds} rounds")
        if copied:
            sentences.append(f"a copy of earlier steps in {copied} of {rounds} rounds")
        return "; ".join(sentences)


@dataclass
class InventedLosses:
    """Counts losses that a client cannot have computed.

    These do not change with the local work, or equal the loss of the client's previous
    report to the last bit. ``p = P(Binomial(reports, rate) >= such reports)``.
    """

    rate: float = 0.01
    sums: ClientSums = field(
        default_factory=lambda: ClientSums(rounds=(), odd=(), last=())
    )

    def grow(self, count: int) -> None:
        """Make room for this many clients."""
        self.sums.grow(count)

    def add(self, clients: Ints, audited: AuditedRound) -> None:
        """Count invented losses."""
        before = audited.loss_before
        reported = ~np.isnan(before)
        reporting = clients[reported]
        repeated = (self.sums["rounds"][clients] > 0) & (
            self.sums["last"][clients] == before
        )
        unchanged = before == audited.loss_after
        odd = (repeated | unchanged)[reported]
        self.sums.count("rounds", reporting)
        self.sums.add("odd", reporting, odd.astype(float))
        self.sums["last"][reporting] = before[reported]

    def p_values(self) -> Floats:
        """The binomial tail."""
        return at_least(self.sums["odd"], self.sums["rounds"], self.rate)

    def describe(self, client: int) -> str:
        """Describe how often the losses were invented."""
        odd = int(self.sums["odd"][client])
        rounds = int(self.sums["rounds"][client])
        if odd:
            return f"losses that were not computed in {odd} of {rounds} reports"
        return ""
