"""Nothing that a node sends is used unseen: every reply is compared with what was asked (D12)."""

from __future__ import annotations

import math
import sys
from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch

from poise.backends.flower.messages import DTYPES, NodeMessage, words
from poise.core.arrivals import UPDATE
from poise.core.errors import IncompatibleParts
from poise.core.vectors import Vector
from poise.engine.wire import Wire

SLACK = 4096  # bytes that a reply may have beyond its updates
LARGEST = sys.float_info.max  # JSON has whole numbers beyond it, which no float is made of


def tensor_name(piece: int, name: str) -> str:
    """Under which name a tensor of the update of a piece of work travels."""
    return str(piece) if name == UPDATE else f"{piece}/{name}"


@dataclass(frozen=True, eq=False)
class PayloadForm:
    """What an update looks like on its way, and how to read it.

    Args:
        wire: the way of the updates.
        model: a model of the run; its values do not matter.
    """

    wire: Wire
    model: Vector

    @cached_property
    def template(self) -> Mapping[str, torch.Tensor]:
        """The payload of an update that changes nothing: names, shapes and number types of all
        payloads.
        """
        template = self.wire.template(self.model)
        for name, rows in template.items():
            if rows.dtype not in DTYPES.values():
                raise IncompatibleParts(
                    (
                        f"{type(self.wire.channel).__name__}: {name!r} holds {rows.dtype}, which "
                        "cannot travel to nodes"
                    ),
                    f"use one of {', '.join(DTYPES)}",
                    where=("channel",),
                )
        return template

    @property
    def bytes(self) -> int:
        """Bytes of one update."""
        return self.wire.bytes_up(self.template, 0)

    def payload(self, reply: NodeMessage, piece: int) -> dict[str, torch.Tensor]:
        """The payload of one piece of work in a reply, one row each."""
        return {
            name: reply.tensors[tensor_name(piece, name)].tensor()[None] for name in self.template
        }

    def decode(self, reply: NodeMessage, piece: int) -> Vector:
        """The update (d,) of one piece of work in a reply."""
        return self.wire.decode(self.payload(reply, piece), self.model)[0]


@dataclass(frozen=True)
class Asked:
    """What a client was asked for, and what is known of it."""

    client: int
    node: int  # Flower's number of the node whose key was registered for this client
    nonce: str  # names this request; a reply to any other one is an old one
    versions: tuple[int, ...]
    occurrences: tuple[int, ...]
    form: PayloadForm  # of an update on its way
    samples: int  # as registered
    steps: int
    reports: frozenset[str]
    max_norm: float = math.inf


def objection(reply: NodeMessage, asked: Asked, answered: Container[str] = ()) -> str:
    """Why a reply is not used; empty where it is in order. ``answered`` are the nonces of replies
    that were used.

    The words complete "client 3 sent …".
    """
    facts = reply.facts
    if reply.sender != asked.node:
        return f"a reply from node {reply.sender}, whose key is not that of client {asked.client}"
    if (nonce := facts.get("nonce")) != asked.nonce:
        old = isinstance(nonce, str) and nonce in answered
        return "an old reply once more" if old else "a reply to another request"
    if nonce in answered:
        return "an old reply once more"
    if "refused" in facts:
        return f"a refusal: {words(facts['refused'])}"
    if reply.size > (most := len(asked.versions) * asked.form.bytes + SLACK):
        return f"a reply of {reply.size} bytes, where {most} are the most it can have"
    wanted = {
        "client": asked.client,
        "versions": list(asked.versions),
        "occurrences": list(asked.occurrences),
        "samples": asked.samples,
        "steps": asked.steps,
    }
    for name, value in wanted.items():
        if type(found := facts.get(name)) is not type(value) or found != value:
            return f"{name} {_short(found)} instead of {value}"
    return _of_values(reply, asked)


def astray(reply: NodeMessage, node: int, nonce: str) -> str:
    """Why a reply answers nothing that this node was asked: not its own, to another request, or a
    refusal.
    """
    if reply.sender != node or reply.facts.get("nonce") != nonce:
        return "a reply to another request"
    return f"a refusal: {words(reply.facts['refused'])}" if "refused" in reply.facts else ""


def _of_values(reply: NodeMessage, asked: Asked) -> str:
    """What is wrong with the updates and the losses themselves."""
    for name in ("loss_before", "loss_after"):
        losses = reply.facts.get(name)
        if name in asked.reports and not _losses(losses, len(asked.versions)):
            return f"{name} {_short(losses)}, which is not a finite number for each piece of work"
        if name not in asked.reports and losses is not None:
            return f"{name}, which nobody asked for"
    wanted = {
        tensor_name(k, name) for k in range(len(asked.versions)) for name in asked.form.template
    }
    if set(reply.tensors) != wanted:
        return f"{len(reply.tensors)} updates instead of {len(wanted)}"
    for piece in range(len(asked.versions)):
        if wrong := _of_update(reply, piece, asked):
            return wrong
    return ""


def _of_update(reply: NodeMessage, piece: int, asked: Asked) -> str:
    """What is wrong with one update."""
    for name, like in asked.form.template.items():
        tensor_bytes = reply.tensors[tensor_name(piece, name)]
        if not tensor_bytes.fits(tuple(like.shape[1:]), like.dtype):
            have = (
                f"{_short(list(tensor_bytes.shape))} {_short(tensor_bytes.dtype)} in "
                f"{len(tensor_bytes.data)} bytes"
            )
            wanted = f"{list(like.shape[1:])} {str(like.dtype).removeprefix('torch.')}"
            return f"an update of shape {have} instead of {wanted}"
    try:
        update = asked.form.decode(reply, piece)
    except (
        RuntimeError,
        ValueError,
        IndexError,
        TypeError,
    ) as error:  # a payload that somebody made up
        return f"an update that cannot be decoded ({type(error).__name__})"
    norm = float(torch.linalg.vector_norm(update.double()))
    if not math.isfinite(norm):
        return f"an update that is not finite ({norm})"
    if norm > asked.max_norm:
        return f"an update of length {norm:.6g}, longer than {asked.max_norm:g}"
    return ""


def _losses(found: object, count: int) -> bool:
    return (
        isinstance(found, list)
        and len(found) == count
        and all(
            isinstance(v, float | int) and not isinstance(v, bool) and abs(v) <= LARGEST
            for v in found
        )
    )


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
