"""Nothing that a node sends is used unseen: every reply is compared with what was asked (D12)."""

from __future__ import annotations

import math
import sys
from collections.abc import Container
from dataclasses import dataclass
from typing import Any

import torch

from poise.backends.letters import Letter, words

SLACK = 4096  # bytes that a reply may have beyond its updates
LARGEST = sys.float_info.max  # JSON has whole numbers beyond it, which no float is made of


@dataclass(frozen=True)
class Asked:
    """What a client was asked for, and what is known of it."""

    client: int
    node: int  # Flower's number of the node whose key was registered for this client
    nonce: str  # names this request; a reply to any other one is an old one
    versions: tuple[int, ...]
    occurrences: tuple[int, ...]
    size: int  # entries of the model
    dtype: torch.dtype
    samples: int  # as registered
    steps: int
    reports: frozenset[str]
    max_norm: float = math.inf


def objection(reply: Letter, asked: Asked, answered: Container[str] = ()) -> str:
    """Why a reply is not used; empty where it is in order. ``answered`` are the nonces of replies that were used.

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
    if reply.size > (most := len(asked.versions) * asked.size * asked.dtype.itemsize + SLACK):
        return f"a reply of {reply.size} bytes, where {most} are the most it can have"
    wanted = {
        "client": asked.client, "versions": list(asked.versions), "occurrences": list(asked.occurrences),
        "samples": asked.samples, "steps": asked.steps,
    }  # fmt: skip
    for name, value in wanted.items():
        if type(found := facts.get(name)) is not type(value) or found != value:
            return f"{name} {_short(found)} instead of {value}"
    return _of_values(reply, asked)


def astray(reply: Letter, node: int, nonce: Any) -> str:
    """Why a reply answers nothing that this node was asked: not its own, to another request, or a refusal."""
    if reply.sender != node or reply.facts.get("nonce") != nonce:
        return "a reply to another request"
    return f"a refusal: {words(reply.facts['refused'])}" if "refused" in reply.facts else ""


def _of_values(reply: Letter, asked: Asked) -> str:
    """What is wrong with the updates and the losses themselves."""
    for name in ("loss_before", "loss_after"):
        losses = reply.facts.get(name)
        if name in asked.reports and not _losses(losses, len(asked.versions)):
            return f"{name} {_short(losses)}, which is not a finite number for each piece of work"
        if name not in asked.reports and losses is not None:
            return f"{name}, which nobody asked for"
    if set(reply.parcels) != {str(k) for k in range(len(asked.versions))}:
        return f"{len(reply.parcels)} updates instead of {len(asked.versions)}"
    for parcel in reply.parcels.values():
        if not parcel.fits(asked.size, asked.dtype):
            have = f"{_short(list(parcel.shape))} {_short(parcel.dtype)} in {len(parcel.data)} bytes"
            return f"an update of shape {have} instead of [{asked.size}] {str(asked.dtype).removeprefix('torch.')}"
        norm = float(torch.linalg.vector_norm(parcel.vector().double()))
        if not math.isfinite(norm):
            return f"an update that is not finite ({norm})"
        if norm > asked.max_norm:
            return f"an update of length {norm:.6g}, longer than {asked.max_norm:g}"
    return ""


def _losses(found: Any, count: int) -> bool:
    return isinstance(found, list) and len(found) == count and all(
        isinstance(v, float | int) and not isinstance(v, bool) and abs(v) <= LARGEST for v in found
    )  # fmt: skip


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
