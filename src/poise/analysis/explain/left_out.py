"""`left_out`: whom a sampler with a limit on sensitivities left out of a run, and the bias."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from poise import theory
from poise.analysis.explain.remarks import Remark
from poise.core.capabilities import LimitsSensitivity
from poise.core.curvature import Curvature
from poise.core.errors import InvalidOption
from poise.core.sensitivity import MOVED, Psi
from poise.core.types import Floats
from poise.privacy.budget import Budget, UnlearningPlan
from poise.results import Run
from poise.training import experiment_of, parts_in
from poise.training.limits import with_limit

SHOWN = 8
"""Maximum number of clients that a text lists one by one."""


@dataclass(frozen=True)
class LeftOut:
    """The clients that a run no longer asked at its end, and the bias of its weights.

    Args:
        limit: Psi*.
        since: by client, the number of rounds after which it was never asked again.
        psi: sensitivity of the last model to every client, (N,).
        importance: p_i, (N,).
        mean: mean coefficient of every client over all rounds, (N,).
    """

    limit: float
    since: dict[int, int]
    psi: Floats
    importance: Floats
    mean: Floats

    @property
    def share(self) -> float:
        """The importance of the clients left out.

        This is the total variation between the requested objective and that of the last
        rounds, if the other clients keep their proportions.
        """
        return float(self.importance[list(self.since)].sum())

    @property
    def chi2(self) -> float:
        """chi^2 between the requested objective and the mean coefficients of the run."""
        if not self.mean.any():
            return float("nan")
        return theory.chi_squared(self.importance, theory.normalised(self.mean))

    def remark(self) -> Remark:
        """Return the bias in words."""
        about = f"this run, with Ψ* = {self.limit:.3g}"
        if not self.since:
            why = (
                f"it left nobody out at its end (largest Ψ = {self.psi.max():.3g}); over all "
                f"rounds χ² = {self.chi2:.3g} from the requested objective"
            )
            return Remark(about, why, "nothing to change")
        clients = sorted(self.since)
        names = ", ".join(map(str, clients[:SHOWN])) + ", …" * (len(clients) > SHOWN)
        why = (
            f"it left out {len(clients)} of {len(self.psi)} clients ({names}) with "
            f"{self.share:.0%} of the importance, the first after {min(self.since.values())} "
            f"rounds; over all rounds χ² = {self.chi2:.3g} from the requested objective"
        )
        if len(clients) == len(self.psi):
            why += f"; nobody was left after {max(self.since.values())} rounds"
        return Remark(about, why, "use a larger sigma or epsilon, or fewer rounds")


def left_out(run: Run) -> LeftOut:
    """Return whom the sampler of a run left out, from the run's ledger."""
    experiment = experiment_of(run)
    parts = parts_in(experiment)
    declared = None
    if "unlearning" in experiment.tables:
        declared = UnlearningPlan.of(experiment.tables["unlearning"]).budget
    unlearnable = experiment.table("run").get("keep") == "unlearnable"
    default = Budget() if unlearnable else None
    sampler = with_limit(parts.sampler, declared, default)
    if not isinstance(sampler, LimitsSensitivity) or sampler.limit is None:
        raise InvalidOption(
            f"the sampler of this run, {type(sampler).__name__}, has no limit on sensitivities",
            "give a run with the sampler Budgeted",
        )
    importance = run.array("importance")
    if importance is None:
        raise InvalidOption("the run did not record p_i of its clients")
    tracker = (declared or Budget()).tracker(
        parts.solver,
        parts.server,
        importance=importance,
        curvature=Curvature.recorded(run.meta),
    )
    since = _out_since(run, tracker, sampler.limit)
    return LeftOut(
        sampler.limit,
        since={c: int(since[c]) for c in np.flatnonzero(since <= run.rounds).tolist()},
        psi=np.array([tracker.of(c) for c in range(run.clients)]),
        importance=importance,
        mean=run.weights.mean(axis=0) if run.rounds else np.zeros(run.clients),
    )


def _out_since(run: Run, psi: Psi, limit: float) -> Floats:
    """Return after how many rounds each client was out for good, (N,); inf if it is not out.

    ``psi`` is an empty tracker; afterwards it holds the sensitivities of the last model.
    """
    table = run.contributions
    moved = run.measurement(MOVED) if len(table) else np.zeros(0)
    ends = np.searchsorted(table["round"], np.arange(run.rounds + 1))
    since = np.full(run.clients, np.inf)
    for n in range(run.rounds):
        span = slice(int(ends[n]), int(ends[n + 1]))
        if ends[n] < ends[n + 1]:
            psi.take(
                table["client"][span],
                table["coefficient"][span],
                moved=moved[span],
                steps=table["steps"][span],
            )
        spent = np.array([psi.of(c) for c in range(run.clients)])
        out = spent + psi.largest > limit
        since = np.where(out, np.minimum(since, n + 1), np.inf)
    return since
