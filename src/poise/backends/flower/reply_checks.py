"""Checks of replies: the server compares each reply with its request before use."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch

from poise.backends.flower.messages import DTYPES, NodeMessage, printable
from poise.core.arrivals import UPDATE
from poise.core.errors import IncompatibleParts
from poise.core.vectors import Vector
from poise.engine.validation import is_finite_number, length_error
from poise.engine.wire import Wire

SLACK = 4096  # bytes that a reply may have beyond its updates


def tensor_name(position: int, name: str) -> str:
    """The name in a message of tensor ``name`` of the assignment at ``position``."""
    if name == UPDATE:
        return str(position)
    return f"{position}/{name}"


@dataclass(frozen=True, eq=False)
class PayloadForm:
    """The shape of encoded updates, and how to decode them.

    Args:
        wire: encodes and decodes updates.
        model: any model of the run; its values do not matter.
    """

    wire: Wire
    model: Vector

    @cached_property
    def template(self) -> Mapping[str, torch.Tensor]:
        """The payload of a zero update: names, shapes and dtypes of all payloads."""
        template = self.wire.template(self.model)
        for name, rows in template.items():
            if rows.dtype not in DTYPES.values():
                channel = type(self.wire.channel).__name__
                raise IncompatibleParts(
                    f"{channel}: {name!r} holds {rows.dtype}, "
                    "which cannot travel to nodes",
                    f"use one of {', '.join(DTYPES)}",
                    where=("channel",),
                )
        return template

    @property
    def bytes(self) -> int:
        """Bytes of one update."""
        return self.wire.bytes_up(self.template, 0)

    def payload(self, reply: NodeMessage, position: int) -> dict[str, torch.Tensor]:
        """The payload of one assignment in a reply, as tensors with one row."""
        return {
            name: reply.tensors[tensor_name(position, name)].tensor()[None]
            for name in self.template
        }

    def decode(self, reply: NodeMessage, position: int) -> Vector:
        """The update (d,) of one assignment in a reply."""
        return self.wire.decode(self.payload(reply, position), self.model)[0]


@dataclass(frozen=True)
class WorkRequest:
    """What the server requested from a client, and what it knows about the client."""

    client: int
    node: int  # Flower's id of the node whose key was registered for this client
    nonce: str  # identifies this request; replies with another nonce are refused
    versions: tuple[int, ...]
    occurrences: tuple[int, ...]
    form: PayloadForm  # of the encoded updates
    samples: int  # as registered
    steps: int
    reports: frozenset[str]
    max_norm: float = math.inf
    may_alter: bool = True  # whether the node registered that it clips or adds noise


def refusal_reason(
    reply: NodeMessage, request: WorkRequest, answered: Container[str] = ()
) -> str:
    """Why the server refuses a reply; empty if the reply is valid.

    The text completes "client 3 sent …". ``answered`` holds the nonces of earlier
    replies.
    """
    facts = reply.facts
    if reply.sender != request.node:
        return (
            f"a reply from node {reply.sender}, whose key is not that of client "
            f"{request.client}"
        )
    nonce = facts.get("nonce")
    if isinstance(nonce, str) and nonce in answered:
        return "an old reply again"
    if nonce != request.nonce:
        return "a reply to another request"
    if "refused" in facts:
        return f"a refusal: {printable(facts['refused'])}"
    limit = len(request.versions) * request.form.bytes + SLACK
    if reply.size > limit:
        return f"a reply of {reply.size} bytes, more than the limit of {limit}"
    expected_facts = {
        "client": request.client,
        "versions": list(request.versions),
        "occurrences": list(request.occurrences),
        "samples": request.samples,
        "steps": request.steps,
    }
    for name, expected in expected_facts.items():
        value = facts.get(name)
        if type(value) is not type(expected) or value != expected:
            return f"{name} {_short(value)} instead of {expected}"
    if facts.get("alters") and not request.may_alter:
        return (
            "an update that its policy clips or makes noisy, and its registration does "
            "not say so: stop and resume the run"
        )
    return _loss_error(reply, request) or _update_error(reply, request)


def identity_error(reply: NodeMessage, node: int, nonce: str) -> str:
    """Why a reply does not answer a request: wrong sender or nonce, or a refusal."""
    if reply.sender != node or reply.facts.get("nonce") != nonce:
        return "a reply to another request"
    if "refused" in reply.facts:
        return f"a refusal: {printable(reply.facts['refused'])}"
    return ""


def _loss_error(reply: NodeMessage, request: WorkRequest) -> str:
    """What is wrong with the losses in a reply."""
    for name in ("loss_before", "loss_after"):
        losses = reply.facts.get(name)
        if name not in request.reports and losses is not None:
            return f"{name}, which the server did not request"
        if name in request.reports and not _are_losses(losses, len(request.versions)):
            return (
                f"{name} {_short(losses)}, which is not a finite number for each "
                "assignment"
            )
    return ""


def _update_error(reply: NodeMessage, request: WorkRequest) -> str:
    """What is wrong with the updates in a reply."""
    positions = range(len(request.versions))
    expected_names = {
        tensor_name(position, name)
        for position in positions
        for name in request.form.template
    }
    if set(reply.tensors) != expected_names:
        return (
            f"tensors {_short(sorted(reply.tensors))} instead of "
            f"{_short(sorted(expected_names))}"
        )
    for position in positions:
        error = _form_error(reply, position, request.form)
        error = error or _norm_error(reply, position, request)
        if error:
            return error
    return ""


def _form_error(reply: NodeMessage, position: int, form: PayloadForm) -> str:
    """What is wrong with the shape or the dtype of one update."""
    for name, template in form.template.items():
        shape = tuple(template.shape[1:])
        tensor_bytes = reply.tensors[tensor_name(position, name)]
        if not tensor_bytes.fits(shape, template.dtype):
            sent_form = (
                f"{_short(list(tensor_bytes.shape))} {_short(tensor_bytes.dtype)}"
            )
            expected_form = (
                f"{list(shape)} {str(template.dtype).removeprefix('torch.')}"
            )
            return (
                f"an update of shape {sent_form} in {len(tensor_bytes.data)} bytes "
                f"instead of {expected_form}"
            )
    return ""


def _norm_error(reply: NodeMessage, position: int, request: WorkRequest) -> str:
    """What is wrong with the values of one update."""
    try:
        update = request.form.decode(reply, position)
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        # a forged payload
        return f"an update that cannot be decoded ({type(error).__name__})"
    norm = float(torch.linalg.vector_norm(update.double()))
    return length_error(norm, request.max_norm)


def _are_losses(values: object, count: int) -> bool:
    """Whether these are ``count`` finite numbers."""
    if not isinstance(values, list) or len(values) != count:
        return False
    return all(is_finite_number(value) for value in values)


def _short(value: object) -> str:
    text = repr(value)
    if len(text) <= 60:
        return text
    return f"{text[:57]}..."
