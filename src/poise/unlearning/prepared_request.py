"""Decide about a request, and write the decision down before retraining."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from poise.core.errors import InvalidOption
from poise.core.vectors import Vector
from poise.unlearning.conditions import conditions_of
from poise.unlearning.histories import (
    CERTIFICATE,
    Histories,
)
from poise.unlearning.methods import (
    CERTIFIED,
    COMPLETE,
    check_method,
    decide,
    grounds_for,
    start_model,
)
from poise.unlearning.noise import commitment
from poise.unlearning.proof import Grounds, require_proof
from poise.unlearning.request import (
    Request,
    units_of,
)
from poise.unlearning.request_context import RequestContext
from poise.unlearning.retraining import (
    has_started,
)


@dataclass(frozen=True)
class PreparedRequest:
    """A request with its decision; ``start`` is None where retraining has already started."""

    request: Request
    grounds: Grounds
    start: Vector | None


def prepare(context: RequestContext) -> PreparedRequest:
    """Decide about a request, and write the decision to disk before retraining."""
    histories = context.histories
    whole = context.whole
    options = context.options
    unfinished = histories.open_request
    if unfinished is not None:
        require_same(Request(options), unfinished)
    budget = options.budget
    check_method(options.method, histories, parts=whole.parts, budget=budget)
    partly_trained = context.layout.trainable < context.layout.size
    grounds = grounds_for(
        options.method,
        whole.parts,
        partly_trained,
        budget=budget,
        conditions=conditions_of(histories.lengths(), whole.parts, context.curvature),
        audit=whole.options.audit,
        start=whole.options.start,
    )
    if options.method in CERTIFIED and options.method not in COMPLETE:
        require_proof(grounds.gaps, options.heuristic)
    index = histories.newest + 1
    folder = histories.branch_folder(index)
    repeats = options.method == "exact"  # its model needs no rounds
    started = is_covered(histories) or (has_started(folder) and not repeats)
    if unfinished is not None and started:
        return PreparedRequest(unfinished, grounds, start=None)
    decision = decide(options.method, histories, units_of(options), budget)
    seed = whole.seed if options.noise == "seeded" else secrets.randbits(120)
    request = Request(
        options,
        index,
        node=decision.node,
        sigma=decision.sigma,
        commitment=commitment(seed, index) if decision.sigma else "",
        curvature=context.curvature,
    )
    # Read the restart model first: a damaged file must not leave a request behind.
    start = start_model(request, histories, parts=whole.parts, seed=seed)
    if folder is not None:
        request.save(folder)
    return PreparedRequest(request, grounds, start)


def require_same(request: Request, unfinished: Request) -> None:
    """Raise where a request differs from the unfinished one."""
    differences = request.differences(unfinished)
    if differences:
        clients = ", ".join(map(str, unfinished.clients))
        options = ", ".join(f"{name} = {value}" for name, value in differences.items())
        raise InvalidOption(
            (
                f"request {unfinished.index} (clients {clients}, {unfinished.method}) is "
                "not finished"
            ),
            f"finish it first: repeat it with the options {options}",
        )


def is_covered(histories: Histories) -> bool:
    """Whether a later certificate covers the newest branch: only its own certificate is lost."""
    later = histories.branch_folder(len(histories.branches) + 1)
    return later is not None and (later / CERTIFICATE).exists()
