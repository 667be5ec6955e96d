"""The audit of a run: a ranking with reasons, thresholds, and how well it does where the truth is
known.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from poise.analysis.reports.audit_page import history_figure, norm_figure, roc_figure, score_figure
from poise.analysis.reports.plots import Plot, plot_of
from poise.apps.ui.models import Ranked, Ranking, Threshold, Verdict
from poise.auditing.audit import ALARM, Audit, audit
from poise.auditing.auditor import Auditor
from poise.core.errors import IncompatibleParts, require
from poise.ledger.run import Run

MOST_CELLS = 20_000_000
"""Clients times rounds up to which a run is audited here: the audit has a score for each."""

THRESHOLDS = (0.1, 0.05, 0.01, 0.001, 0.0001)
PER_PAGE = 50


@dataclass(frozen=True)
class Judged:
    """An audit without what it was worked out from: small enough to be kept.

    Attributes:
        audit: scores, p-values, scores by round; its auditor is empty.
        words: what is held against each client.
    """

    audit: Audit
    words: tuple[str, ...]

    @property
    def nbytes(self) -> int:
        """What it weighs in memory, about."""
        return int(self.audit.by_round.nbytes + sum(map(len, self.words)) + 100 * len(self.words))

    def at(self, alarm: float) -> Judged:
        """The same with another false-alarm rate."""
        require(0 < alarm < 1, f"alarm must lie between 0 and 1, not {alarm}")
        return replace(self, audit=replace(self.audit, alarm=alarm))


def judge(run: Run) -> Judged:
    """Audit a run, as `poise audit` does."""
    if run.clients * run.rounds > MOST_CELLS:
        raise IncompatibleParts(
            (
                f"{run.clients:,} clients in {run.rounds:,} rounds are too many to be audited while "
                "you wait"
            ),
            f"poise audit {run.path}",
        )
    found = audit(run)
    words = tuple(
        said.partition(": ")[2] or said for said in found.auditor.explain_all(run.clients)
    )
    light = replace(
        found, by_round=found.by_round.astype(np.float32), auditor=Auditor(found.auditor.dimension)
    )
    return Judged(light, words)


def free_riders(run: Run) -> list[int]:
    """Who really is dishonest: the clients of the experiment's attacks; empty where nobody
    knows.
    """
    tables = tomllib.loads(run.experiment).get("attacks", [])
    return sorted(
        {int(c) for attack in tables for c in attack.get("clients", ()) if int(c) < run.clients}
    )


def ranking(
    found: Judged, number: int = 1, size: int = PER_PAGE, true: Sequence[int] = ()
) -> Ranking:
    """A page of the clients from the most suspected on; pages are counted from 1."""
    one = found.audit
    order = np.lexsort((one.p_values, -one.scores))
    pages = max(1, -(-len(order) // size))
    number = min(max(number, 1), pages)
    first, bad = (number - 1) * size, set(true)
    rows = [
        Ranked(
            **verdict(found, i).model_dump(),
            rank=first + k + 1,
            free_rider=i in bad if true else None,
        )
        for k, i in enumerate(order[first : first + size].tolist())
    ]
    return Ranking(
        page=number, pages=pages, total=len(order), suspects=len(one.suspects), rows=rows
    )


def verdict(found: Judged, client: int) -> Verdict:
    """What the audit says of one client."""
    one = found.audit
    p = float(one.p_values[client])
    return Verdict(
        client=client,
        score=float(one.scores[client]),
        p=p,
        why=found.words[client],
        suspected=p <= one.alarm,
    )


def thresholds(found: Judged, true: Sequence[int] = ()) -> list[Threshold]:
    """How many are suspected at some false-alarm rates and, where it is known, how many of them
    rightly.
    """
    bad, rows = set(true), []
    for alarm in sorted({*THRESHOLDS, found.audit.alarm}, reverse=True):
        suspects = set(found.at(alarm).audit.suspects)
        row = Threshold(alarm=alarm, suspected=len(suspects), chosen=alarm == found.audit.alarm)
        if bad:
            row.found, row.free_riders, row.false_alarms = (
                len(suspects & bad),
                len(bad),
                len(suspects - bad),
            )
        rows.append(row)
    return rows


def plots(run: Run, found: Judged, true: Sequence[int] = ()) -> list[Plot]:
    """The figures of `poise audit`, and the ROC where it is known who free-rides."""
    one = found.audit
    drawn = [score_figure(one), history_figure(one), norm_figure(run, one)]
    if true and len(true) < run.clients:
        drawn.insert(0, roc_figure(one, true))
    return [plot_of([figure], [""]) for figure in drawn]


def live_news(run: Run) -> list[str]:
    """What the audit said while the run went on (``audit`` under ``[run]``)."""
    return [event for event in run.events if event.startswith("audit:")]


__all__ = [
    "ALARM",
    "Judged",
    "free_riders",
    "judge",
    "live_news",
    "plots",
    "ranking",
    "thresholds",
    "verdict",
]
