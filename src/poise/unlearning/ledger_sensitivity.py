"""Psi(n, i) of a run, read from its ledger."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from typing import Any

import numpy as np

from poise import servers as _servers  # noqa: F401 - parts are known by name once their module is loaded
from poise import solvers as _solvers  # noqa: F401
from poise.core.errors import InvalidOption
from poise.core.parts import build
from poise.core.sensitivity import MOVED
from poise.core.types import Floats
from poise.ledger.run import Run
from poise.privacy.budget import Budget, Participation


def sensitivity(
    run: Run, participation: Participation = "conservative", strong_convexity: float | None = None
) -> Floats:
    r"""The bounded sensitivity of the model after n aggregations to every client, (R + 1, N).

    ``Psi(n, c) = sum_{s<n} | Delta(S_s, theta^s) - Delta(S_s \ c, theta^s) |``, S_s the cohort of
    aggregation s; with ``strong_convexity`` every summand fades by ``(1 - eta (lambda + mu))^K``
    per round after it (FedAvg; in general by `poise.core.sensitivity.growth`, which is above 1 in a
    round whose coefficients add up to more than 2).

    Args:
        run: a run; inf where it stopped following a client that no declared budget can reach any
            more.
        participation: ``conservative``, or ``optimistic`` (see `Budget`).
        strong_convexity: mu of the clients' losses.

    Source: E eq. 5.8, 5.11, D.25.
    """
    budget = Budget(participation=participation, strong_convexity=strong_convexity)
    return counted(run, budget)


def counted(run: Run, budget: Budget, clients: Sequence[int] | None = None) -> Floats:
    """`sensitivity` as a budget counts it; of some clients only, (R + 1, len(clients)), where they
    are named.
    """
    importance = run.array("importance")
    if budget.participation == "optimistic" and importance is None:
        raise InvalidOption(
            "the run keeps no table of its clients: optimistic sensitivities need p_i"
        )
    shares = np.zeros(0) if importance is None else importance
    psi = budget.tracker(part_of(run, "solver"), part_of(run, "server"), shares)
    c = run.contributions
    read = run.measurement(MOVED) if run.rounds and len(c) else np.zeros(0)
    ends = np.searchsorted(c["round"], np.arange(run.rounds + 1))
    result = np.zeros((run.rounds + 1, run.clients if clients is None else len(clients)))
    for n in range(run.rounds):
        span = slice(int(ends[n]), int(ends[n + 1]))
        if ends[n] < ends[n + 1]:
            psi.take(
                c["client"][span], c["coefficient"][span], read[span], int(c["steps"][span].min())
            )
        if clients is None:
            result[n + 1, list(psi.values)] = list(psi.values.values())
        else:
            result[n + 1] = [psi.of(client) for client in clients]
    return result


def part_of(run: Run, slot: str) -> Any:
    """The part that a run's experiment names for a slot."""
    return build(slot, tomllib.loads(run.experiment).get(slot, {}))


__all__ = ["counted", "part_of", "sensitivity"]
