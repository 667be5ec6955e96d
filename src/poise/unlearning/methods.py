"""Where each method restarts from, and with how much noise."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from poise.core.errors import IncompatibleParts
from poise.core.types import Floats
from poise.core.vectors import Vector
from poise.engine.plan import Parts
from poise.privacy.budget import Budget
from poise.unlearning.fed_accum import reaggregated, refuse_unstored
from poise.unlearning.histories import Histories
from poise.unlearning.noise import perturbed
from poise.unlearning.privacy_accounting import mechanism
from poise.unlearning.proof import Grounds, grounds, private_grounds
from poise.unlearning.request import Request
from poise.unlearning.restart_tree import Node, influence, restart

CERTIFIED = ("sifu", "scratch", "last", "dp")
"""Methods that promise something; the others keep what they were trained on."""

TOGETHER = ("sifu", "scratch", "last")
"""Methods whose promises hold side by side in one history."""


@dataclass(frozen=True)
class Decision:
    """Restart at ``node`` with noise ``sigma``; ``ideal`` is the node that would be taken if every
    model were kept.
    """

    node: Node
    sigma: float
    ideal: Node


def decide(method: str, histories: Histories, clients: tuple[int, ...], budget: Budget) -> Decision:
    """What a method does with a request."""
    newest = histories.newest
    last = (newest, histories.run(newest).rounds)
    if method == "scratch":
        return Decision((0, 0), 0.0, (0, 0))
    if method == "last":
        return Decision(
            last, noise_for(histories, [*histories.oracle, last], clients, budget), last
        )
    if method != "sifu":  # fine-tune, dp, and fed-accum, which re-aggregates up to there
        return Decision(last, 0.0, last)
    psi = [histories.psi(s, budget) for s in range(newest + 1)]
    branch, most = restart(psi, histories.oracle, clients, budget.limit, histories.forgotten)
    fine = influence(psi[branch], [*clients, *histories.forgotten]) <= budget.limit
    kept = [n for n in histories.run(branch).kept if n <= most and fine[n]]
    return Decision((branch, max(kept)), budget.sigma, (branch, most))


def noise_for(
    histories: Histories, nodes: list[Node], clients: tuple[int, ...], budget: Budget
) -> float:
    """The noise that the last of these nodes needs: sensitivities add up along the history (E eq.
    5.12).
    """
    total = along(histories, nodes, clients, budget).max()
    if not np.isfinite(total):
        raise IncompatibleParts(
            (
                "last: the run stopped following a client that its declared budget could not reach "
                "any more"
            ),
            "train without a budget (unlearning=) to use this method",
        )
    return float(total / replace(budget, sigma=1.0).limit)


def least_noise(histories: Histories, request: Request) -> float:
    """What a request that was honoured had to add at least, to keep what it promised."""
    if request.method == "last":
        return noise_for(histories, histories.oracle, request.clients, request.budget)
    return request.budget.sigma if request.method == "sifu" else 0.0


def along(
    histories: Histories, nodes: list[Node], clients: tuple[int, ...], budget: Budget
) -> Floats:
    """Psi of each client, added up over the nodes of a history."""
    return np.asarray(
        np.sum([histories.psi(s, budget)[n, list(clients)] for s, n in nodes], axis=0)
    )


def start_of(request: Request, histories: Histories, parts: Parts, seed: int) -> Vector:
    """The model that retraining starts from: the node's with the request's noise, or what
    re-aggregation gives.
    """
    branch, n = request.node
    if request.method == "fed-accum":
        gone = [*histories.forgotten, *request.clients]
        return reaggregated(histories, [*histories.oracle, request.node], parts, gone)
    model = torch.from_numpy(histories.run(branch).models(n))
    return perturbed(model, request.sigma, seed, request.index, histories.root.trainable)


def grounds_for(
    method: str, parts: Parts, buffers: bool, budget: Budget, *, audit: str | None = None
) -> Grounds:
    """What a method's guarantee rests on; ``audit`` is what the run did with suspects."""
    found = private_grounds(parts, buffers) if method == "dp" else grounds(parts, buffers, budget)
    if audit != "quarantine":
        return found
    if method == "dp":
        why = (
            "audit='quarantine': who is kept out depends on what clients sent, and the others "
            "count for more"
        )
        return replace(found, gaps=(*found.gaps, why))
    same = "without the client, the audit would have kept out the same others"
    return replace(found, assumed=(*found.assumed, same))


def admit(method: str, histories: Histories, parts: Parts, budget: Budget) -> None:
    """Raise where a method cannot be used on this history."""
    refuse_mixture(method, histories, budget)
    if method == "dp":
        mechanism(parts)
    if method == "fed-accum":
        refuse_unstored(histories, parts)


def refuse_mixture(method: str, histories: Histories, budget: Budget) -> None:
    """A guarantee for all forgotten clients needs that none was forgotten by a method that promises
    nothing.
    """
    before = {b.request.method for b in histories.finished}
    other = [
        b.request
        for b in histories.finished
        if b.request.method in ("sifu", "last") and b.request.budget != budget
    ]
    if other and method in TOGETHER:
        raise IncompatibleParts(
            f"request {other[0].index} of this history promised something else: {other[0].budget}",
            (
                "one history has one budget, since its noise covers later requests too: use the same, "
                "or out="
            ),
        )
    if not before <= (set(TOGETHER) if method in TOGETHER else {method}):
        raise IncompatibleParts(
            f"{method}: earlier requests of this history used {', '.join(sorted(before))}",
            "keep one history per method: out= (--out) names another folder",
        )
