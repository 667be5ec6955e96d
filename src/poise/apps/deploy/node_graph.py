"""The similarity graph of clients on nodes: each tells one direction, made from its own data."""

from __future__ import annotations

import numpy as np
import torch

from poise.backends.flower.messages import NodeMessage, words
from poise.backends.flower.reply_checks import SLACK, astray
from poise.backends.flower.transport import Transport
from poise.core.errors import UpdateRefused
from poise.core.types import Floats

UNIT = 1e-6  # how far the length of a message may be from 1


def asked_messages(post: Transport, patience: float, size: int) -> Floats:
    """Every client's message, (N, D) with D = ``size``; raises where a node does not send one that
    can be used.
    """
    letters = {
        c: NodeMessage({**post.common("graph", c), "entries": size}) for c in sorted(post.nodes)
    }
    replies = post.ask(letters, patience)
    found = []
    for client, letter in letters.items():
        reply = replies[client]
        wrong = (
            reply if isinstance(reply, str) else _objection(reply, letter, post.nodes[client], size)
        )
        if wrong or isinstance(reply, str):
            raise UpdateRefused(
                (
                    f"client {post.number(client)} was asked for its message of the similarity graph "
                    f"and sent {wrong}"
                ),
                "a weighting without a graph needs none",
            )
        found.append(reply.tensors["0"].vector().numpy())
    return np.stack(found)


def _objection(reply: NodeMessage, letter: NodeMessage, node: int, size: int) -> str:
    """Why a reply is not used; empty where it is in order."""
    if wrong := astray(reply, node, letter.facts["nonce"]):
        return wrong
    facts = reply.facts
    if facts.get("client") != letter.facts["client"]:
        return f"that of client {words(facts.get('client'), 60)}"
    if reply.size > (most := size * torch.float64.itemsize + SLACK):
        return f"a reply of {reply.size} bytes, where {most} are the most it can have"
    if set(reply.tensors) != {"0"} or not reply.tensors["0"].fits((size,), torch.float64):
        forms = (
            ", ".join(f"{list(p.shape)} {p.dtype}"[:60] for p in reply.tensors.values())
            or "nothing"
        )
        return f"{words(forms, 200)} instead of [{size}] float64"
    length = float(torch.linalg.vector_norm(reply.tensors["0"].vector()))
    return "" if abs(length - 1) < UNIT else f"a message of length {length:.6g} instead of 1"
