"""FedAccum: the training again from what clients sent, as if some of them had not been there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from poise.core import equation
from poise.core.algorithm_state import memory_of
from poise.core.errors import IncompatibleParts
from poise.core.threads import one_thread
from poise.core.types import Floats
from poise.core.vectors import Vector
from poise.engine.plan import Parts
from poise.ledger.run import Run
from poise.training import seeded
from poise.unlearning.histories import Histories
from poise.unlearning.restart_tree import Node


def refuse_unstored(histories: Histories, parts: Parts) -> None:
    """Raise where the updates of some branch were not kept, or the server used more than
    updates.
    """
    for branch in range(histories.newest + 1):
        if not histories.run(branch).keeps_updates:
            raise IncompatibleParts(
                "fed-accum: the run kept no updates to aggregate again",
                "train with keep_updates=True ([run] keep_updates = true)",
            )
    if memory_of(parts.solver) is not None:
        raise IncompatibleParts(
            (
                f"fed-accum: the server of {type(parts.solver).__name__} uses a memory beside the "
                "updates"
            ),
            "use SGD or Prox",
        )


def reaggregated(
    histories: Histories, nodes: Sequence[Node], parts: Parts, gone: Sequence[int]
) -> Vector:
    r"""The initial model, moved by the stored updates of everyone but ``gone``, branch after
    branch.

    ``theta <- Server(theta, sum_{i in S_n \ W} omega_i O_n/(O_n - W_n) Delta_i)`` for every round n
    up to each branch's node, with the coefficients omega that were applied, O_n their sum and W_n
    the sum of those of the clients gone. The updates are those that were sent in view of models
    that the others had moved too: nothing is promised.

    Args:
        histories: the training and its branches.
        nodes: (branch, rounds) of the present history, in order.
        parts: what the training was composed of; its server does the steps.
        gone: W, numbered as in the training.

    Source: E section 5.5.1, appendix D.4 (G. Liu et al. 2021).
    """
    theta = torch.from_numpy(histories.root.models(0))
    with one_thread():
        for branch, rounds in nodes:
            theta = _replayed(
                theta,
                histories.run(branch),
                parts,
                np.isin(histories.members(branch), list(gone)),
                rounds,
            )
    return theta


def _replayed(theta: Vector, run: Run, parts: Parts, gone: np.ndarray, rounds: int) -> Vector:
    """The steps of one branch; ``gone`` says of each of its clients whether it is to be left
    out.
    """
    server = seeded(parts, int(run.meta["seed"])).server
    state = server.init(theta[: run.trainable])
    c = run.contributions
    stays = ~gone[c["client"]]
    ends = np.searchsorted(c["round"], np.arange(rounds + 1))
    for n in range(rounds):
        span = slice(int(ends[n]), int(ends[n + 1]))
        omega = _shared(np.ascontiguousarray(c["coefficient"][span]), stays[span])
        deltas = torch.from_numpy(run.updates(n)).to(theta)
        deltas = deltas if stays[span].all() else deltas[torch.from_numpy(stays[span])]
        direction = parts.aggregator.combine(deltas, omega)
        theta, state = equation.step(
            equation.Moving(theta, run.trainable, state), direction, omega, server
        )
    return theta


def _shared(omega: Floats, stays: np.ndarray) -> Floats:
    """The coefficients of those who stay, scaled to the sum that all had.

    >>> _shared(np.array([0.5, 0.25, 0.25]), np.array([False, True, True]))
    array([0.5, 0.5])
    """
    if stays.all():
        return omega
    rest = omega[stays]
    return np.asarray(rest * (omega.sum() / rest.sum()) if rest.sum() else rest)
