"""The unlearning methods: where each restarts, how much noise it adds, and when it applies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from poise.core.errors import IncompatibleParts
from poise.core.sensitivity import Group
from poise.core.types import Floats
from poise.core.vectors import Vector
from poise.engine.plan import Parts
from poise.privacy.budget import Budget
from poise.unlearning.conditions import Conditions
from poise.unlearning.exact import GROUNDS, require_sums, sums_without
from poise.unlearning.fed_accum import reaggregate, require_stored_updates
from poise.unlearning.histories import Histories
from poise.unlearning.noise import perturbed
from poise.unlearning.privacy_accounting import mechanism
from poise.unlearning.proof import Grounds, grounds, private_grounds
from poise.unlearning.request import Request
from poise.unlearning.restart_tree import Node, influence, restart

CERTIFIED = ("sifu", "scratch", "last", "dp", "exact", "shards")
"""Methods that give a guarantee; after the others the model may still know the clients."""

COMPLETE = ("scratch", "exact", "shards")
"""Methods after which nothing of the clients is left in the model."""

COMPATIBLE = ("sifu", "scratch", "last")
"""Methods whose guarantees hold side by side in one history."""


RETRAINED = Grounds(
    (
        "the shard was trained again without the forgotten clients, from the initial model of "
        "its training, with the same seed and number of rounds"
    ),
    assumed=(
        "initial model, seed and number of rounds do not depend on the forgotten clients' data",
    ),
    gaps=(),
)
"""The grounds of complete removal from a shard."""

GIVEN_START = (
    "the initial model of the training was given: it does not depend on the client"
)

RESOLUTION = 1000
"""The least noise, in units of the rounding error of the largest entry of a model.

Psi bounds distances in exact arithmetic; hundreds of rounds in float32 add rounding
errors of about this size.
"""


@dataclass(frozen=True)
class RestartDecision:
    """The decision about a request: where to restart, and with how much noise.

    Args:
        node: the kept model to restart from.
        sigma: standard deviation of the noise on it.
        ideal: the node that the method would take if every model had been kept.
    """

    node: Node
    sigma: float
    ideal: Node


def decide(
    method: str, histories: Histories, units: Sequence[Group], budget: Budget
) -> RestartDecision:
    """Decide where a method restarts for these clients or groups, and with how much noise."""
    newest = histories.newest
    last = (newest, histories.run(newest).rounds)
    if method in COMPLETE:
        return RestartDecision((0, 0), sigma=0.0, ideal=(0, 0))
    if method == "last":
        nodes = [*histories.nodes, last]
        sigma = noise_for(histories, nodes, units=units, budget=budget)
        return RestartDecision(last, sigma=sigma, ideal=last)
    if (
        method != "sifu"
    ):  # fine-tune and dp; fed-accum re-aggregates all rounds up to the last
        return RestartDecision(last, sigma=0.0, ideal=last)
    columns = [*units, *histories.units]
    psi = [histories.unit_psi(s, budget, columns) for s in range(newest + 1)]
    branch, latest = restart(
        psi,
        histories.nodes,
        clients=range(len(units)),
        limit=budget.limit,
        unlearned=range(len(units), len(columns)),
        node_limits=[
            replace(budget, sigma=min(budget.sigma, histories.noises[node])).limit
            for node in histories.nodes
        ],
    )
    within = influence(psi[branch], range(len(columns))) <= budget.limit
    kept = [n for n in histories.run(branch).kept if n <= latest and within[n]]
    return RestartDecision(
        (branch, max(kept)), sigma=budget.sigma, ideal=(branch, latest)
    )


def noise_for(
    histories: Histories, nodes: list[Node], *, units: Sequence[Group], budget: Budget
) -> float:
    """Return the noise that the last node needs: sensitivities add up along the history.

    Source: [Fraboni 2023, eq. 5.12].
    """
    total = sensitivity_along(histories, nodes, units=units, budget=budget).max()
    if not np.isfinite(total):
        raise IncompatibleParts(
            (
                "last: the run stopped tracking a client whose sensitivity exceeded the declared "
                "budget"
            ),
            "to use this method, train without a declared budget (unlearning=)",
        )
    return float(total / replace(budget, sigma=1.0).limit)


def required_noise(histories: Histories, request: Request) -> float:
    """Return the least noise that the guarantee of a fulfilled request needs."""
    if request.method == "last":
        return noise_for(
            histories, histories.nodes, units=request.units, budget=request.budget
        )
    if request.method == "sifu":
        return request.budget.sigma
    return 0.0


def sensitivity_along(
    histories: Histories, nodes: list[Node], *, units: Sequence[Group], budget: Budget
) -> Floats:
    """Return Psi of each client or group, added up over the nodes of a history."""
    psi = [histories.unit_psi(s, budget, units)[n] for s, n in nodes]
    return np.asarray(np.sum(psi, axis=0))


def start_model(
    request: Request, histories: Histories, *, parts: Parts, seed: int
) -> Vector:
    """Return the model that retraining starts from.

    It is the model at the request's node plus noise; for ``fed-accum`` the
    re-aggregated model, and for ``exact`` the model without the clients' sums.
    """
    branch, n = request.node
    removed = [*histories.unlearned, *request.clients]
    if request.method == "exact":
        return sums_without(histories.root, parts, removed)
    if request.method == "fed-accum":
        nodes = [*histories.nodes, request.node]
        return reaggregate(histories, nodes, parts=parts, removed=removed)
    model = torch.from_numpy(histories.run(branch).models(n))
    require_resolution(model, request.sigma)
    return perturbed(
        model,
        request.sigma,
        seed=seed,
        index=request.index,
        trainable=histories.root.trainable,
    )


def require_resolution(model: Vector, sigma: float) -> None:
    """Raise where noise is so small that rounding errors are as large as what it hides."""
    finest = RESOLUTION * torch.finfo(model.dtype).eps * float(model.abs().max())
    if 0 < sigma < finest:
        raise IncompatibleParts(
            f"sigma = {sigma:.3g} is below {finest:.3g}, where the rounding errors of "
            f"{model.dtype} numbers are as large as what the noise hides",
            "use method='scratch', a larger sigma, or a task with dtype='float64'",
        )


def grounds_for(
    method: str,
    parts: Parts,
    buffers: bool,
    budget: Budget,
    *,
    conditions: Conditions,
    audit: str | None = None,
    start: str | None = None,
) -> Grounds:
    """Return the grounds of a method's guarantee; ``audit`` and ``start`` are the run's options."""
    if method == "exact":
        return GROUNDS
    if method == "shards":
        return RETRAINED
    base = _grounds_of_parts(
        method, parts, buffers, budget, conditions=conditions, audit=audit
    )
    if start is None:
        return base
    return replace(base, assumed=(*base.assumed, GIVEN_START))


def _grounds_of_parts(
    method: str,
    parts: Parts,
    buffers: bool,
    budget: Budget,
    *,
    conditions: Conditions,
    audit: str | None,
) -> Grounds:
    """Return the grounds that the parts and the audit of a run give a method."""
    if method == "dp":
        base = private_grounds(parts, buffers)
    else:
        base = grounds(parts, buffers, budget, conditions=conditions)
    if audit != "quarantine":
        return base
    if method == "dp":
        gap = (
            "audit='quarantine': who is kept out depends on what clients sent, and the others "
            "count for more"
        )
        return replace(base, gaps=(*base.gaps, gap))
    same = "without the client, the audit would have kept out the same others"
    return replace(base, assumed=(*base.assumed, same))


def check_method(
    method: str, histories: Histories, *, parts: Parts, budget: Budget
) -> None:
    """Raise where a method does not apply to this history."""
    _check_earlier_requests(method, histories, budget)
    if method == "dp":
        mechanism(parts)
    if method == "fed-accum":
        require_stored_updates(histories, parts)
    if method == "exact":
        require_sums(histories.root, parts)


def _check_earlier_requests(method: str, histories: Histories, budget: Budget) -> None:
    """Raise where the earlier requests of a history used another budget or an unlike method.

    A guarantee for all unlearned clients needs that every request of the history gave
    it.
    """
    requests = [branch.request for branch in histories.finished]
    other_budget = [
        r for r in requests if r.method in ("sifu", "last") and r.budget != budget
    ]
    if other_budget and method in COMPATIBLE:
        earlier = other_budget[0]
        raise IncompatibleParts(
            f"request {earlier.index} of this history has another guarantee: {earlier.budget}",
            (
                "use the same budget, because the noise of a history also covers its later "
                "requests; or start another history with out="
            ),
        )
    methods = {r.method for r in requests}
    allowed = set(COMPATIBLE) if method in COMPATIBLE else {method}
    if not methods <= allowed:
        raise IncompatibleParts(
            f"{method}: earlier requests of this history used {', '.join(sorted(methods))}",
            "use one history per method: out= (--out) names another folder",
        )
