"""The audit while a run goes on: warn, or take what a suspect sends with weight 0."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from poise.auditing.auditor import Auditor
from poise.core.types import Floats, Record

Action = Literal["warn", "quarantine"]
ACTIONS = ("warn", "quarantine")

CLEARED = 0.5
"""The p-value above which a suspect is cleared."""


@dataclass
class LiveAudit:
    """After every round, who is suspected; a fold over the records, so the same after a resume.

    A client is looked at again and again: at its k-th contribution the limit is ``alarm * 6/(pi
    k)^2``, which adds up to ``alarm`` over any number of rounds. A suspect goes on sending; it is
    cleared when there is nothing against it any more (p above `CLEARED`).

    Args:
        action: ``"warn"`` says so; ``"quarantine"`` gives the client weight 0 from the next round
            on, the others more.
        dimension: entries of an update that gradients move.
        alarm: the probability, over the whole run, with which a working client is suspected, at
            most.
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
        """Whose contributions have weight 0 from now on."""
        return frozenset(self.suspects) if self.action == "quarantine" else frozenset()

    def add(self, record: Record) -> None:
        """Take in one more round."""
        c = record.contributions
        self.auditor.add(
            np.array([x.client for x in c], dtype=np.int64),
            np.array([x.version for x in c], dtype=np.int64),
            omega=np.array([x.coefficient for x in c]),
            norms=np.array([x.norm for x in c]),
            measurements=record.measurements,
            loss_before=_losses(x.loss_before for x in c),
            loss_after=_losses(x.loss_after for x in c),
        )
        p_values = dict(zip(self.auditor.clients, self.auditor.p_values().tolist(), strict=True))
        for client in sorted({x.client for x in c}):
            self._judge(record.index, client, p_values.get(client, 1.0))

    def _judge(self, n: int, client: int, p: float) -> None:
        looks = len(self.auditor.pasts[client].norms) if client in self.auditor.pasts else 1
        limit = self.alarm * 6 / (np.pi * looks) ** 2
        before = f"audit: after round {n}, "
        if client in self.suspects and p > CLEARED:
            self.suspects.remove(client)
            self.news.append(f"{before}client {client} is no longer suspected (p = {p:.2g})")
        elif client not in self.suspects and p <= limit:
            self.suspects.add(client)
            what = "quarantined" if self.action == "quarantine" else "suspected"
            self.news.append(f"{before}client {client} is {what}: {self.auditor.explain(client)}")


def _losses(reported: Iterable[float | None]) -> Floats:
    """Losses as an array; nan where a client reported none."""
    return np.array([np.nan if loss is None else loss for loss in reported], dtype=np.float64)
