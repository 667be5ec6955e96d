"""FedAccum: re-aggregate the stored updates as if the unlearned clients had not taken part."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from poise.core import equation
from poise.core.algorithm_state import memory_of
from poise.core.errors import IncompatibleParts
from poise.core.threads import one_thread
from poise.core.traits import AggregatorTraits, traits_of
from poise.core.types import Floats
from poise.core.vectors import Vector
from poise.engine.plan import Parts
from poise.results import Run
from poise.training import seeded
from poise.unlearning.histories import Histories
from poise.unlearning.restart_tree import Node


def require_stored_updates(histories: Histories, parts: Parts) -> None:
    """Raise where a branch did not keep its updates, or the server used more than updates."""
    for branch in range(histories.newest + 1):
        if not histories.run(branch).keeps_updates:
            raise IncompatibleParts(
                (
                    "fed-accum: the run did not keep its updates, so poise cannot "
                    "aggregate them again"
                ),
                "train with keep_updates=True ([run] keep_updates = true)",
            )
    if traits_of(parts.aggregator, AggregatorTraits).latest:
        raise IncompatibleParts(
            (
                f"fed-accum: {type(parts.aggregator).__name__} used updates in later "
                "rounds again, which fed-accum does not repeat"
            ),
            "use method='scratch' or 'fine-tune'",
        )
    if memory_of(parts.solver) is not None:
        raise IncompatibleParts(
            (
                f"fed-accum: the server of {type(parts.solver).__name__} uses state "
                "beside the updates"
            ),
            "use SGD or Prox",
        )


def reaggregate(
    histories: Histories, nodes: Sequence[Node], *, parts: Parts, removed: Sequence[int]
) -> Vector:
    r"""Move the initial model by the stored updates of all clients but ``removed``.

    ``theta <- Server(theta, sum_{i in S_n \ W} omega_i O_n/(O_n - W_n) Delta_i)`` for
    every round n up to each branch's node, with the coefficients omega that were
    applied, O_n their sum and W_n the sum over the removed clients. The remaining
    clients computed their updates from models that the removed clients had moved, so
    this method gives no guarantee.

    Args:
        histories: the training and its branches.
        nodes: (branch, rounds) of the present history, in order.
        parts: the parts of the training; its server makes the steps.
        removed: W, numbered as in the training.

    Source: [Fraboni 2023, §5.5.1, App. D.4], [Liu 2021].
    """
    theta = torch.from_numpy(histories.root.models(0))
    with one_thread():
        for branch, rounds in nodes:
            is_removed = np.isin(histories.members(branch), list(removed))
            run = histories.run(branch)
            theta = _replay(
                theta, run, parts=parts, is_removed=is_removed, rounds=rounds
            )
    return theta


def _replay(
    theta: Vector, run: Run, *, parts: Parts, is_removed: NDArray[np.bool_], rounds: int
) -> Vector:
    """Repeat the steps of one branch; ``is_removed`` has one entry per client of the branch."""
    server = seeded(parts, int(run.meta["seed"])).server
    state = server.init(theta[: run.trainable])
    contributions = run.contributions
    stays = ~is_removed[contributions["client"]]
    ends = np.searchsorted(contributions["round"], np.arange(rounds + 1))
    for n in range(rounds):
        span = slice(int(ends[n]), int(ends[n + 1]))
        coefficients = np.ascontiguousarray(contributions["coefficient"][span])
        omega = _rescaled(coefficients, stays[span])
        deltas = torch.from_numpy(run.updates(n)).to(theta)
        if not stays[span].all():
            deltas = deltas[torch.from_numpy(stays[span])]
        direction = parts.aggregator.combine(deltas, omega)
        moving = equation.Moving(theta, run.trainable, state)
        theta, state = equation.step(moving, direction, omega, server)
    return theta


def _rescaled(omega: Floats, stays: NDArray[np.bool_]) -> Floats:
    """Return the coefficients of the clients that stay, scaled to the sum of all coefficients.

    >>> _rescaled(np.array([0.5, 0.25, 0.25]), np.array([False, True, True]))
    array([0.5, 0.5])
    """
    if stays.all():
        return omega
    rest = omega[stays]
    if not rest.sum():
        return rest
    return np.asarray(rest * (omega.sum() / rest.sum()))
