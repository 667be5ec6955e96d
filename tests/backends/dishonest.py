"""A dishonest client app for tests: ``lies.json`` in a node's folder maps versions to lies."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from poise.apps.deploy.folder import NODE
from poise.apps.deploy.node import reply_to
from poise.backends.flower.messages import NodeMessage, TensorBytes

GB = 10**9


def client_app() -> Any:
    from flwr.clientapp import ClientApp

    app = ClientApp()
    for kind in ("call", "hello", "work"):
        app.query(kind)(receive)
    return app


def receive(message: Any, context: Any) -> Any:
    from flwr.app import Message

    folder = Path(os.environ[NODE])
    request = NodeMessage.read(message).facts
    honest = reply_to(message, folder)
    lies = (
        json.loads((folder / "lies.json").read_text())
        if (folder / "lies.json").exists()
        else {}
    )
    lie = lies.get(
        str(request["versions"][0]) if request["kind"] == "work" else "hello"
    )
    reply = LIES[lie](honest, folder) if lie else honest
    return Message(reply.content(), reply_to=message)


def keep(reply: NodeMessage, folder: Path) -> NodeMessage:
    """The truth, noted for later."""
    tensors = {k: [p.dtype, p.shape, p.data.hex()] for k, p in reply.tensors.items()}
    (folder / "kept.json").write_text(
        json.dumps({"facts": dict(reply.facts), "tensors": tensors})
    )
    return reply


def replay(reply: NodeMessage, folder: Path) -> NodeMessage:
    kept = json.loads((folder / "kept.json").read_text())
    tensors = {
        k: TensorBytes(dtype, tuple(shape), bytes.fromhex(data))
        for k, (dtype, shape, data) in kept["tensors"].items()
    }
    return NodeMessage(kept["facts"], tensors)


def samples(reply: NodeMessage, folder: Path) -> NodeMessage:
    return replace(reply, facts={**reply.facts, "samples": GB})


def nan(reply: NodeMessage, folder: Path) -> NodeMessage:
    size = reply.tensors["0"].shape
    return replace(reply, tensors={"0": TensorBytes.of(torch.full(size, float("nan")))})


def shape(reply: NodeMessage, folder: Path) -> NodeMessage:
    return replace(reply, tensors={"0": TensorBytes.of(torch.zeros(7))})


def large(reply: NodeMessage, folder: Path) -> NodeMessage:
    """All of it on the wire: no two chunks are the same."""
    return replace(
        reply, tensors={"0": TensorBytes("float32", (GB // 4,), os.urandom(GB))}
    )


def piece(reply: NodeMessage, folder: Path) -> NodeMessage:
    """In one piece, where Flower would send many."""
    from flwr.app.message import array

    array.FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE = 2 * GB
    return large(reply, folder)


def zeros(reply: NodeMessage, folder: Path) -> NodeMessage:
    """Little on the wire, since Flower sends equal chunks once, and all of it when put together."""
    return replace(reply, tensors={"0": TensorBytes("float32", (GB // 4,), bytes(GB))})


def facts(reply: NodeMessage, folder: Path) -> NodeMessage:
    """Words without end."""
    return replace(reply, facts={**reply.facts, "words": "x" * (GB // 100)})


LIES: dict[str, Callable[[NodeMessage, Path], NodeMessage]] = {
    f.__name__: f
    for f in (keep, replay, samples, nan, shape, large, piece, zeros, facts)
}
