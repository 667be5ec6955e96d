"""The audit of a run: ranking with evidence, thresholds, quality if truth is known."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from poise.analysis.reports.audit_page import (
    history_figure,
    norm_figure,
    roc_figure,
    score_figure,
)
from poise.analysis.reports.plots import Plot, plot_of
from poise.apps.ui.models import AuditResult, Ranked, Ranking, Threshold
from poise.auditing.audit import ALARM, Audit, audit
from poise.auditing.auditor import Auditor
from poise.core.client_names import client_title
from poise.core.errors import IncompatibleParts, require
from poise.results import Run

MOST_CELLS = 20_000_000
"""Maximum of clients times rounds for an audit in the console; each has a score."""

THRESHOLDS = (0.1, 0.05, 0.01, 0.001, 0.0001)
PER_PAGE = 50


@dataclass(frozen=True)
class KeptAudit:
    """An audit without its raw data, small enough for the cache.

    Attributes:
        audit: scores, p-values and scores by round; its auditor is empty.
        words: the evidence about each client.
    """

    audit: Audit
    words: tuple[str, ...]

    @property
    def nbytes(self) -> int:
        """Approximate size in memory."""
        return int(
            self.audit.by_round.nbytes
            + sum(map(len, self.words))
            + 100 * len(self.words)
        )

    def at(self, alarm: float) -> KeptAudit:
        """The same audit at another false-alarm rate."""
        require(0 < alarm < 1, f"alarm must be between 0 and 1, not {alarm}")
        return replace(self, audit=replace(self.audit, alarm=alarm))


def audit_run(run: Run) -> KeptAudit:
    """Audit a run, like `poise audit`."""
    if run.clients * run.rounds > MOST_CELLS:
        raise IncompatibleParts(
            (
                f"{run.clients:,} clients in {run.rounds:,} rounds are too many for the "
                "console"
            ),
            f"audit the run in a terminal: poise audit {run.path}",
        )
    full = audit(run)
    sentences = full.auditor.explain_all(run.clients)
    words = tuple(sentence.partition(": ")[2] or sentence for sentence in sentences)
    light = replace(
        full,
        by_round=full.by_round.astype(np.float32),
        auditor=Auditor(full.auditor.dimension),
    )
    return KeptAudit(light, words)


def free_riders(run: Run) -> list[int]:
    """The clients of the experiment's attacks; empty if the truth is unknown."""
    attackers: set[int] = set()
    for attack in tomllib.loads(run.experiment).get("attacks", []):
        attackers.update(int(client) for client in attack.get("clients", ()))
    return sorted(client for client in attackers if client < run.clients)


def ranking(
    kept: KeptAudit,
    number: int = 1,
    size: int = PER_PAGE,
    free_riders: Sequence[int] = (),
) -> Ranking:
    """A page of the clients, most suspicious first; pages count from 1."""
    audit = kept.audit
    order = np.lexsort((audit.p_values, -audit.scores))
    pages = max(1, -(-len(order) // size))
    number = min(max(number, 1), pages)
    first = (number - 1) * size
    rows = []
    for rank, client in enumerate(
        order[first : first + size].tolist(), start=first + 1
    ):
        is_free_rider = None
        if free_riders:
            is_free_rider = client in free_riders
        result = audit_result(kept, client).model_dump()
        rows.append(Ranked(**result, rank=rank, free_rider=is_free_rider))
    return Ranking(
        page=number,
        pages=pages,
        total=len(order),
        suspects=len(audit.suspects),
        rows=rows,
    )


def audit_result(kept: KeptAudit, client: int) -> AuditResult:
    """The audit result of one client."""
    audit = kept.audit
    p = float(audit.p_values[client])
    return AuditResult(
        client=client,
        name=client_title(client, audit.names),
        score=float(audit.scores[client]),
        p=p,
        why=kept.words[client],
        suspected=p <= audit.alarm,
    )


def thresholds(kept: KeptAudit, free_riders: Sequence[int] = ()) -> list[Threshold]:
    """The suspects at several false-alarm rates, and the hits if the truth is known."""
    guilty = set(free_riders)
    rows = []
    for alarm in sorted({*THRESHOLDS, kept.audit.alarm}, reverse=True):
        suspects = set(kept.at(alarm).audit.suspects)
        row = Threshold(
            alarm=alarm, suspected=len(suspects), chosen=alarm == kept.audit.alarm
        )
        if guilty:
            row.found = len(suspects & guilty)
            row.free_riders = len(guilty)
            row.false_alarms = len(suspects - guilty)
        rows.append(row)
    return rows


def plots(run: Run, kept: KeptAudit, free_riders: Sequence[int] = ()) -> list[Plot]:
    """The figures of `poise audit`, and the ROC curve if the free-riders are known."""
    audit = kept.audit
    names = run.client_names
    figures = [
        score_figure(audit, names),
        history_figure(audit, names),
        norm_figure(run, audit),
    ]
    if free_riders and len(free_riders) < run.clients:
        figures.insert(0, roc_figure(audit, free_riders))
    return [plot_of([figure], [""]) for figure in figures]


def live_events(run: Run) -> list[str]:
    """The events of the audit during the run (``audit`` under ``[run]``)."""
    return [event for event in run.events if event.startswith("audit:")]


__all__ = [
    "ALARM",
    "KeptAudit",
    "audit_result",
    "audit_run",
    "free_riders",
    "live_events",
    "plots",
    "ranking",
    "thresholds",
]
