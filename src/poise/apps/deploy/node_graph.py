"""Messages for the similarity graph: each node sends a direction of its own data."""

from __future__ import annotations

import numpy as np
import torch

from poise.backends.flower.messages import NodeMessage, printable
from poise.backends.flower.reply_checks import SLACK, identity_error
from poise.backends.flower.transport import Transport
from poise.core.errors import UpdateRefused
from poise.core.types import Floats

UNIT = 1e-6  # largest deviation of a direction's length from 1


def request_directions(transport: Transport, patience: float, size: int) -> Floats:
    """Directions of all clients, (N, ``size``); raises if a node sends none."""
    requests = {}
    for client in sorted(transport.nodes):
        facts = {**transport.common_facts("graph", client), "entries": size}
        requests[client] = NodeMessage(facts)
    replies = transport.ask(requests, patience)
    directions = []
    for client, request in requests.items():
        reply = replies[client]
        if isinstance(reply, str):
            reason = reply
        else:
            reason = _refusal_reason(
                reply, request, node=transport.nodes[client], size=size
            )
        if reason or isinstance(reply, str):
            number = transport.number(client)
            raise UpdateRefused(
                f"client {number} was asked for its message of the similarity graph "
                f"and sent {reason}",
                "use a weighting without a graph",
            )
        directions.append(reply.tensors["0"].vector().numpy())
    return np.stack(directions)


def _refusal_reason(
    reply: NodeMessage, request: NodeMessage, node: int, size: int
) -> str:
    """Why the server refuses a direction (empty if valid); ends "client 3 sent …"."""
    if error := identity_error(reply, node, request.facts["nonce"]):
        return error
    client = reply.facts.get("client")
    if client != request.facts["client"]:
        return f"that of client {printable(client, 60)}"
    limit = size * torch.float64.itemsize + SLACK
    if reply.size > limit:
        return f"a reply of {reply.size} bytes, more than the limit of {limit}"
    if set(reply.tensors) != {"0"} or not reply.tensors["0"].fits(
        (size,), torch.float64
    ):
        forms = [f"{list(t.shape)} {t.dtype}"[:60] for t in reply.tensors.values()]
        sent = ", ".join(forms) or "nothing"
        return f"{printable(sent, 200)} instead of [{size}] float64"
    length = float(torch.linalg.vector_norm(reply.tensors["0"].vector()))
    if not abs(length - 1) < UNIT:
        return f"a message of length {length:.6g} instead of 1"
    return ""
