"""`audit`: who only pretends to work, from what the ledger holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poise.auditing.auditor import Auditor
from poise.auditing.probe import COHORT, LAYERS, RECEIVED, SKETCH, SPREAD
from poise.core.errors import InvalidOption, require
from poise.core.types import Floats
from poise.ledger.run import Run

ALARM = 0.01
"""The false-alarm rate at which a client is suspected."""


@dataclass(frozen=True, eq=False)
class Audit:
    """What a run says about its clients.

    Args:
        scores: (N,) ``-log10`` of the p-value of the way of free-riding that fits best; 0 is no
            suspicion at all.
        p_values: (N,) how likely a working client looks as this one does; 1 for one that never took
            part.
        by_round: (R, N) scores after each aggregation; nan before a client first took part.
        alarm: clients with a p-value up to this are suspected.
    """

    scores: Floats
    p_values: Floats
    by_round: Floats
    alarm: float
    auditor: Auditor

    @property
    def suspects(self) -> list[int]:
        """Clients whose p-value is at most ``alarm``."""
        return [int(i) for i in np.flatnonzero(self.p_values <= self.alarm)]

    def explain(self, i: int) -> str:
        """What is held against client i, in words."""
        require(
            0 <= i < len(self.p_values),
            f"there is no client {i}",
            f"clients are 0 to {len(self.p_values) - 1}",
        )
        return self.auditor.explain(i)

    def auc(self, true: ArrayLike, round: int | None = None) -> float:
        """The chance that a free-rider scores higher than a working client (ROC-AUC; ties count
        half).

        Args:
            true: the free-riders, by number, or (N,) booleans.
            round: after so many aggregations; None for all.
        """
        bad = self._split(true, "auc")
        scores = self.scores if round is None else np.nan_to_num(self.by_round[round - 1])
        left, right = scores[bad][:, None], scores[~bad][None, :]
        return float(((left > right) + 0.5 * (left == right)).mean())

    def roc(self, true: ArrayLike) -> tuple[Floats, Floats]:
        """(false alarms, found) as shares of the working clients and of the free-riders, for every
        limit on the score.

        From (0, 0), nobody suspected, to (1, 1); the area under it is `auc`.

        Args:
            true: the free-riders, by number, or (N,) booleans.
        """
        bad = self._split(true, "roc")
        limits = np.unique(self.scores)[::-1]
        return _reaching(self.scores[~bad], limits), _reaching(self.scores[bad], limits)

    def _split(self, true: ArrayLike, what: str) -> NDArray[np.bool_]:
        """Who is a free-rider, (N,); refused where nobody is, or everybody."""
        bad = np.zeros(len(self.p_values), dtype=bool)
        bad[np.asarray(true)] = True
        require(bool(bad.any() and not bad.all()), f"{what}: there must be free-riders and others")
        return bad


def _reaching(scores: Floats, limits: Floats) -> Floats:
    """The share of the scores that reach each limit, after a 0 for a limit that none does."""
    below = np.searchsorted(np.sort(scores), limits, side="left")
    return np.concatenate([[0.0], 1 - below / len(scores)])


def score(p_values: Floats) -> Floats:
    """``-log10 p``, at most 300."""
    return np.asarray(-np.log10(np.maximum(p_values, 1e-300)) + 0.0)


def audit(run: Run, alarm: float = ALARM) -> Audit:
    """Look for clients that only pretend to work; reads the ledger, needs no data.

    Args:
        run: a finished, stopped or still running run.
        alarm: the false-alarm rate: a working client is suspected with this probability at most.

    >>> import poise
    >>> fed = poise.federation("digits", clients=10)
    >>> run = poise.train(fed, poise.task("logistic"), poise.solvers.SGD(lr=0.1, steps=5, batch_size=16), rounds=8,
    ...                   attacks=[poise.attacks.FreeRider([2], kind="disguised")])
    >>> poise.audit(run).suspects
    [2]

    Source: the attacks are those of E chapter 6; the audit is poise's own.
    """
    require(0 < alarm < 1, f"alarm must lie between 0 and 1, not {alarm}")
    if SKETCH not in run.measurements and run.rounds:
        raise InvalidOption(
            "nothing was read of this run's updates for an audit", "it was made by an older poise"
        )
    auditor = Auditor(len(run.model))
    by_round = np.full((run.rounds, run.clients), np.nan)
    c = run.contributions
    read = {
        name: run.measurement(name)
        for name in (SKETCH, COHORT, SPREAD, LAYERS, RECEIVED)
        if name in run.measurements
    }
    cuts = np.searchsorted(c["round"], np.arange(run.rounds + 1))
    for n in range(run.rounds):
        rows = slice(cuts[n], cuts[n + 1])
        part = c[rows]
        auditor.add(
            part["client"],
            part["version"],
            omega=part["coefficient"],
            norms=part["norm"],
            measurements={name: values[rows] for name, values in read.items()},
            loss_before=part["loss_before"],
            loss_after=part["loss_after"],
        )
        by_round[n, auditor.clients] = score(auditor.evidence())
    scores, p_values = np.zeros(run.clients), np.ones(run.clients)
    scores[auditor.clients], p_values[auditor.clients] = (
        score(auditor.evidence()),
        auditor.p_values(),
    )
    return Audit(scores, p_values, by_round, alarm, auditor)
