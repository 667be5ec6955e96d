"""`poise.audit`: find free-riders from the ledger of a run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poise.auditing.auditor import Auditor
from poise.auditing.probe import MEASUREMENTS, SKETCH
from poise.core.client_names import client_number
from poise.core.errors import InvalidOption, require
from poise.core.types import Floats
from poise.results import Run

ALARM = 0.01
"""The default false-alarm rate."""


@dataclass(frozen=True, eq=False)
class Audit:
    """The scores and p-values of the clients of a run.

    Args:
        scores: (N,) ``-log10`` of the p-value of the best-fitting pattern of
            free-riding; 0 means no suspicion.
        p_values: (N,) how likely a working client looks like this one; 1 for a client
            that never took part.
        by_round: (R, N) scores after each aggregation; nan before a client first took
            part.
        alarm: the audit suspects clients whose p-value is at most this.
        auditor: the auditor after the last round, for explanations.
        names: of the clients; empty if they have none.
    """

    scores: Floats
    p_values: Floats
    by_round: Floats
    alarm: float
    auditor: Auditor
    names: tuple[str, ...] = ()

    @property
    def suspects(self) -> list[int]:
        """Clients whose p-value is at most ``alarm``."""
        return [int(i) for i in np.flatnonzero(self.p_values <= self.alarm)]

    def explain(self, i: int | str) -> str:
        """Explain why client i, by number or name, is suspected or not."""
        return self.auditor.explain(client_number(i, len(self.p_values), self.names))

    def auc(
        self, true: ArrayLike, round: int | None = None, seen: bool = False
    ) -> float:
        """The chance that a free-rider scores above a working client; ties are half.

        Args:
            true: the free-riders, by number, or (N,) booleans.
            round: use the scores after this many aggregations; None for all.
            seen: compare only clients that took part until then. The audit can say
                nothing about the others: they have score 0, and bound what `auc` can
                reach.
        """
        free_rider = self._free_riders(true, "auc")
        rounds = len(self.by_round)
        after = rounds if round is None else round
        require(
            after == rounds or 1 <= after <= rounds,
            f"auc: round must be from 1 to {rounds}, not {after}",
        )
        scores = self.scores
        if after < rounds:
            scores = np.nan_to_num(self.by_round[after - 1])
        if seen:
            took_part = ~np.isnan(self.by_round[:after]).all(axis=0)
            free_rider, scores = free_rider[took_part], scores[took_part]
            require(
                bool(free_rider.any() and not free_rider.all()),
                "auc: no free-rider, or only free-riders, took part so far",
                "choose a later round, or seen=False",
            )
        left = scores[free_rider][:, None]
        right = scores[~free_rider][None, :]
        return float(((left > right) + 0.5 * (left == right)).mean())

    def roc(self, true: ArrayLike) -> tuple[Floats, Floats]:
        """The ROC curve: (false alarms, detections) for every limit on the score.

        Both are shares: of the working clients and of the free-riders. The curve runs
        from (0, 0), where no client is suspected, to (1, 1); the area under it is
        `auc`.

        Args:
            true: the free-riders, by number, or (N,) booleans.
        """
        free_rider = self._free_riders(true, "roc")
        limits = np.unique(self.scores)[::-1]
        false_alarms = _share_reaching(self.scores[~free_rider], limits)
        detections = _share_reaching(self.scores[free_rider], limits)
        return false_alarms, detections

    def _free_riders(self, true: ArrayLike, method: str) -> NDArray[np.bool_]:
        """Return which clients are free-riders, (N,); raise if none or all are."""
        free_rider = np.zeros(len(self.p_values), dtype=bool)
        free_rider[np.asarray(true)] = True
        mixed = bool(free_rider.any() and not free_rider.all())
        require(
            mixed,
            f"{method}: there must be free-riders and others",
            "name at least one free-rider, and not all clients",
        )
        return free_rider


def _share_reaching(scores: Floats, limits: Floats) -> Floats:
    """Return a 0, then the share of scores that reach each limit."""
    below = np.searchsorted(np.sort(scores), limits, side="left")
    return np.concatenate([[0.0], 1 - below / len(scores)])


def score(p_values: Floats) -> Floats:
    """``-log10 p``, at most 300."""
    return np.asarray(-np.log10(np.maximum(p_values, 1e-300)) + 0.0)


def audit(run: Run, alarm: float = ALARM) -> Audit:
    """Look for free-riders in a run; reads its ledger, not the clients' data.

    Args:
        run: a finished, stopped or still running run.
        alarm: the false-alarm rate: the audit suspects a working client with this
            probability at most.

    >>> import poise
    >>> fed = poise.federation("digits", clients=10)
    >>> sgd = poise.solvers.SGD(lr=0.1, steps=5, batch_size=16)
    >>> free_rider = poise.attacks.FreeRider([2], kind="disguised")
    >>> run = poise.train(fed, poise.task("logistic"), sgd, rounds=8, attacks=[free_rider])
    >>> poise.audit(run).suspects
    [2]

    Source: the attacks are those of [Fraboni 2023, ch. 6]; the audit is poise's own.
    """
    require(0 < alarm < 1, f"alarm must lie between 0 and 1, not {alarm}")
    if SKETCH not in run.measurements and run.rounds:
        raise InvalidOption(
            (
                "the ledger of this run has no measurements for an audit: an older poise "
                "made it"
            ),
            "train again with this version of poise",
        )
    auditor = Auditor(len(run.model))
    by_round = np.full((run.rounds, run.clients), np.nan)
    contributions = run.contributions
    recorded = set(run.measurements)
    measurements = {
        name: run.measurement(name) for name in MEASUREMENTS if name in recorded
    }
    ends = np.searchsorted(contributions["round"], np.arange(run.rounds + 1))
    for n in range(run.rounds):
        rows = slice(ends[n], ends[n + 1])
        in_round = contributions[rows]
        auditor.add(
            in_round["client"],
            in_round["version"],
            omega=in_round["coefficient"],
            norms=in_round["norm"],
            measurements={name: values[rows] for name, values in measurements.items()},
            loss_before=in_round["loss_before"],
            loss_after=in_round["loss_after"],
        )
        by_round[n, auditor.clients] = score(auditor.evidence())
    scores = np.zeros(run.clients)
    scores[auditor.clients] = score(auditor.evidence())
    p_values = np.ones(run.clients)
    p_values[auditor.clients] = auditor.p_values()
    return Audit(
        scores,
        p_values=p_values,
        by_round=by_round,
        alarm=alarm,
        auditor=auditor,
        names=run.client_names,
    )
