"""The audit during a run: warn about suspects, or give their updates weight 0."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from poise.auditing.auditor import Auditor
from poise.core.types import Floats, Record

Action = Literal["warn", "quarantine"]
ACTIONS = ("warn", "quarantine")
VERDICTS: dict[Action, str] = {"warn": "suspected", "quarantine": "quarantined"}

CLEARED = 0.5
"""The audit clears a suspect whose p-value is above this."""


@dataclass
class LiveAudit:
    """Updates the suspects after every round; a resumed run gets the same ones.

    The audit tests each client repeatedly: at its k-th contribution the limit is
    ``alarm * 6/(pi k)^2``, which adds up to ``alarm`` over any number of rounds. A
    suspect keeps sending updates; the audit clears it once its p-value is above
    `CLEARED`.

    Args:
        action: ``"warn"`` reports suspects; ``"quarantine"`` also gives them weight 0
            from the next round on, and the others more.
        dimension: entries of an update that gradients move.
        alarm: the largest probability, over the whole run, that a working client is
            suspected.
        suspects: the clients under suspicion now.
        news: the messages so far, in order.
    """

    action: Action
    dimension: int
    alarm: float = 0.01
    suspects: set[int] = field(default_factory=set)
    news: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.auditor = Auditor(self.dimension)

    @property
    def excluded(self) -> frozenset[int]:
        """The clients whose contributions have weight 0 from now on."""
        if self.action == "quarantine":
            return frozenset(self.suspects)
        return frozenset()

    def add(self, record: Record) -> None:
        """Take in one more round."""
        contributions = record.contributions
        self.auditor.add(
            np.array([c.client for c in contributions], dtype=np.int64),
            np.array([c.version for c in contributions], dtype=np.int64),
            omega=np.array([c.coefficient for c in contributions]),
            norms=np.array([c.norm for c in contributions]),
            measurements=record.measurements,
            loss_before=_losses(c.loss_before for c in contributions),
            loss_after=_losses(c.loss_after for c in contributions),
        )
        p_values = dict(
            zip(self.auditor.clients, self.auditor.p_values().tolist(), strict=True)
        )
        for client in sorted({c.client for c in contributions}):
            self._judge(client, p_values.get(client, 1.0), n=record.index)

    def _judge(self, client: int, p: float, *, n: int) -> None:
        """Suspect or clear a client after round n."""
        past = self.auditor.pasts.get(client)
        tests = 1
        if past is not None:
            tests = len(past.norms)
        limit = self.alarm * 6 / (np.pi * tests) ** 2
        subject = f"audit: after round {n}, client {client} is"
        if client in self.suspects and p > CLEARED:
            self.suspects.remove(client)
            self.news.append(f"{subject} no longer suspected (p = {p:.2g})")
        elif client not in self.suspects and p <= limit:
            self.suspects.add(client)
            verdict = VERDICTS[self.action]
            self.news.append(f"{subject} {verdict}: {self.auditor.explain(client)}")


def _losses(reported: Iterable[float | None]) -> Floats:
    """Return losses as an array; nan where a client reported none."""
    return np.array(list(reported), dtype=np.float64)  # NumPy converts None to nan
