"""L and mu of a federation on nodes: each node bounds the curvature of its own loss."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from poise.backends.flower.messages import NodeMessage, printable
from poise.backends.flower.reply_checks import SLACK, identity_error
from poise.backends.flower.transport import Transport
from poise.core.curvature import ConvexKind, Curvature
from poise.core.types import Ints


@dataclass(frozen=True)
class CurvatureRequest:
    """A request for bounds of the curvature of every node's loss.

    Args:
        kind: the kind of convex loss that the task has.
        batch_size: samples of a local step; None for all samples.
    """

    kind: ConvexKind
    batch_size: int | None

    def ask(
        self, transport: Transport, patience: float, *, members: Ints
    ) -> Curvature | None:
        """Return bounds for all nodes; None, with a warning, if a node sends none.

        Args:
            transport: the connection to the nodes that take part.
            patience: seconds to wait for the replies.
            members: the clients of the training, by number in the deployment. The
                server sends nothing to unlearned ones. The proof for one client needs
                the curvature of all others, so one client may be absent.
        """
        present = {transport.number(client) for client in transport.nodes}
        absent = [int(member) for member in members if int(member) not in present]
        if len(absent) > 1:
            clients = ", ".join(map(str, absent))
            _warn(f"the training did not record it, and clients {clients} have left")
            return None
        requests = {}
        for client in sorted(transport.nodes):
            facts = transport.common_facts("curvature", client)
            requests[client] = NodeMessage({**facts, "batch_size": self.batch_size})
        replies = transport.ask(requests, patience)
        reports = []
        for client, request in requests.items():
            reply = replies[client]
            error = self.error_in(reply, request, node=transport.nodes[client])
            if error or isinstance(reply, str):
                _warn(
                    f"client {request.facts['client']} was asked for it and sent {error}"
                )
                return None
            reports.append(_reported(reply.facts))
        return _over_all(reports)

    def error_in(
        self, reply: NodeMessage | str, request: NodeMessage, node: int
    ) -> str:
        """Return what is wrong with a reply; empty if it is valid. Completes "client 3 sent …"."""
        if isinstance(reply, str):
            return reply
        if error := identity_error(reply, node, request.facts["nonce"]):
            return error
        facts = reply.facts
        if facts.get("client") != request.facts["client"]:
            return f"that of client {printable(facts.get('client'), 60)}"
        if reply.size > SLACK:
            return f"a reply of {reply.size} bytes, more than the limit of {SLACK}"
        if facts.get("kind") != self.kind:
            kind = printable(facts.get("kind"), 60)
            return f"the curvature of a {kind} loss, not of a {self.kind} loss"
        return _bounds_error(facts)


def _warn(reason: str) -> None:
    """Warn that L is unknown; the log of the job and the user get the reason."""
    warnings.warn(
        f"L is unknown, so unlearning has no guarantee: {reason}", stacklevel=3
    )


def _bounds_error(facts: Mapping[str, Any]) -> str:
    """Return what is wrong with the numbers in a reply; empty if they are possible."""
    smoothness = _number(facts.get("smoothness"))
    if not 0 < smoothness < math.inf:
        sent = printable(facts.get("smoothness"), 60)
        return f"L = {sent}, which is not a finite number above 0"
    if not 0 <= _number(facts.get("convexity")) <= smoothness:
        sent = printable(facts.get("convexity"), 60)
        return f"mu = {sent}, which is not between 0 and its L"
    if not isinstance(facts.get("exact"), bool):
        return f"exact = {printable(facts.get('exact'), 60)} instead of true or false"
    return ""


def _number(value: object) -> float:
    """Return a number of a reply; nan if it is none that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # JSON allows larger integers
        return math.nan


def _reported(facts: Mapping[str, Any]) -> Curvature:
    """Return the curvature in a valid reply."""
    return Curvature(
        facts["kind"],
        smoothness=float(facts["smoothness"]),
        convexity=float(facts["convexity"]),
        exact=facts["exact"],
    )


def _over_all(reports: list[Curvature]) -> Curvature:
    """Return bounds that hold for every client."""
    return Curvature(
        reports[0].kind,
        smoothness=max(report.smoothness for report in reports),
        convexity=min(report.convexity for report in reports),
        exact=all(report.exact for report in reports),
    )
