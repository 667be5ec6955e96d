"""Psi(n, i) of a run, computed from its ledger."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from typing import Any

import numpy as np

from poise.core.curvature import Curvature
from poise.core.errors import InvalidOption
from poise.core.parts import build
from poise.core.sensitivity import MOVED, Psi
from poise.core.types import Floats
from poise.privacy.budget import Budget, Participation
from poise.results import Run


def sensitivity(
    run: Run,
    participation: Participation = "conservative",
    strong_convexity: float | None = None,
) -> Floats:
    r"""The bounded sensitivity of the model after n aggregations to every client, (R + 1, N).

    ``Psi(n, c) = sum_{s<n} | Delta(S_s, theta^s) - Delta(S_s \ c, theta^s) |``, S_s the
    cohort of aggregation s; with ``strong_convexity`` every summand fades by
    ``(1 - eta (lambda + mu))^K`` per round after it (FedAvg; in general by
    `poise.core.sensitivity.growth`, which may be above 1 in a round whose coefficients
    add up to more than 1).

    Args:
        run: a run; inf once poise stopped tracking a client that exceeded the declared
            budget.
        participation: ``conservative``, or ``optimistic`` (see `Budget`).
        strong_convexity: mu of the clients' losses.

    Source: [Fraboni 2023, eq. 5.8, 5.11, D.25].
    """
    budget = Budget(participation=participation, strong_convexity=strong_convexity)
    return budget_sensitivity(run, budget)


def budget_sensitivity(
    run: Run, budget: Budget, clients: Sequence[int] | None = None
) -> Floats:
    """Compute `sensitivity` with the counting rules of a budget.

    The result is (R + 1, N), or (R + 1, len(clients)) for the given clients.
    """
    psi = tracker_for(run, budget)
    contributions = run.contributions
    moved = measured_distances(run)
    ends = np.searchsorted(contributions["round"], np.arange(run.rounds + 1))
    columns = run.clients if clients is None else len(clients)
    result = np.zeros((run.rounds + 1, columns))
    for n in range(run.rounds):
        span = slice(int(ends[n]), int(ends[n + 1]))
        if ends[n] < ends[n + 1]:
            psi.take(
                contributions["client"][span],
                contributions["coefficient"][span],
                moved[span],
                contributions["steps"][span],
            )
        if clients is None:
            result[n + 1, list(psi.values)] = list(psi.values.values())
        else:
            result[n + 1] = [psi.of(client) for client in clients]
    return result


def measured_distances(run: Run) -> Floats:
    """Return the measurement of every contribution; empty if no client contributed."""
    if not len(run.contributions):
        return np.zeros(0)
    return run.measurement(MOVED)


def tracker_for(run: Run, budget: Budget) -> Psi:
    """Return an empty tracker of a run's sensitivities, with the rules of a budget."""
    importance = run.array("importance")
    if budget.participation == "optimistic" and importance is None:
        raise InvalidOption(
            (
                "the run did not record p_i of its clients, which optimistic "
                "sensitivities need"
            ),
            "use participation='conservative'",
        )
    shares = np.zeros(0) if importance is None else importance
    return budget.tracker(
        part_of(run, "solver"),
        part_of(run, "server"),
        importance=shares,
        curvature=Curvature.recorded(run.meta),
    )


def part_of(run: Run, slot: str) -> Any:
    """Build the part that a run's experiment names for a slot."""
    return build(slot, tomllib.loads(run.experiment).get(slot, {}))


__all__ = [
    "budget_sensitivity",
    "measured_distances",
    "part_of",
    "sensitivity",
    "tracker_for",
]
