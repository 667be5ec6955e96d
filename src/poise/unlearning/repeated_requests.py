"""Requests that were made before: return their result, or write a lost certificate anew."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from poise.config.unlearn_request import UnlearnRequest
from poise.core.errors import InvalidOption
from poise.unlearning.histories import Branch, Histories
from poise.unlearning.request import Request


def fulfilled_before(histories: Histories, request: UnlearnRequest) -> Branch | None:
    """Return the finished branch of the same request; None if there is none.

    Raises where the clients were unlearned with other options.
    """
    for branch in histories.finished:
        earlier = branch.request
        if set(earlier.clients) != set(request.clients):
            continue
        target = earlier.target if request.target is None else request.target
        sigma = request.sigma
        if request.plan_sigma:
            sigma = earlier.options.sigma
        again = replace(request, clients=earlier.clients, target=target, sigma=sigma)
        differences = Request(again).differences(earlier)
        if not differences:
            return branch
        options = ", ".join(f"{name} = {value}" for name, value in differences.items())
        raise InvalidOption(
            f"request {earlier.index} unlearned these clients already, with {options}",
            "leave the options as they were, or start another history with out= (--out)",
        )
    return None


def repaired(histories: Histories, clients: Iterable[int]) -> Histories:
    """Return the histories up to a request whose certificate is lost, if it has these clients.

    Repeating the request then only certifies its branch again. Raises where another
    request has no certificate.
    """
    lacking = histories.uncertified()
    if lacking is None:
        return histories
    if set(lacking.request.clients) != set(clients):
        histories.require_certified()
    known = histories.branches[: lacking.request.index]
    return Histories(histories.root, histories.folder, known)
