"""Forged replies of nodes: each is refused in words that name what is wrong with it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from poise.backends.flower.messages import NodeMessage, TensorBytes
from poise.backends.flower.reply_checks import PayloadForm, WorkRequest, refusal_reason
from poise.core.errors import UpdateRefused
from poise.core.vectors import Layout
from poise.engine.wire import Wire

LOSS = frozenset({"loss_before"})
FORM = PayloadForm(Wire(Layout.of_shapes({"w": (6,)})), torch.zeros(6))
REQUEST = WorkRequest(
    client=3,
    node=77,
    nonce="now",
    versions=(5, 4),
    occurrences=(0, 1),
    form=FORM,
    samples=100,
    steps=8,
    reports=LOSS,
    max_norm=10.0,
)
GOOD = {
    "nonce": "now",
    "client": 3,
    "versions": [5, 4],
    "occurrences": [0, 1],
    "samples": 100,
    "steps": 8,
    "loss_before": [0.5, 0.25],
}


def forged_reply(values: Any = None, sender: int = 77, **facts: Any) -> NodeMessage:
    vectors = [torch.ones(6), torch.zeros(6)] if values is None else values
    told = {k: v for k, v in {**GOOD, **facts}.items() if v is not None}
    return NodeMessage(
        told, {str(k): TensorBytes.of(v) for k, v in enumerate(vectors)}, sender
    )


def test_a_reply_in_order_is_used() -> None:
    assert refusal_reason(forged_reply(), REQUEST, {"yesterday"}) == ""
    assert refusal_reason(forged_reply(), REQUEST, {"now"}) == "an old reply again"


@pytest.mark.parametrize(
    ("forged", "words"),
    [
        (forged_reply(refused="no\ud800 \x00\x1b[2J"), "a refusal: no? ??[2J"),
        (
            forged_reply(sender=78),
            "a reply from node 78, whose key is not that of client 3",
        ),
        (forged_reply(client=2), "client 2 instead of 3"),
        (forged_reply(client="3"), "client '3' instead of 3"),
        (forged_reply(versions=[5, 3]), "versions [5, 3] instead of [5, 4]"),
        (forged_reply(occurrences=[0, 0]), "occurrences [0, 0] instead of [0, 1]"),
        (forged_reply(samples=10**9), "samples 1000000000 instead of 100"),
        (forged_reply(samples=None), "samples None instead of 100"),
        (forged_reply(steps=80), "steps 80 instead of 8"),
        (forged_reply(nonce="before"), "a reply to another request"),
        (forged_reply(nonce="yesterday"), "an old reply again"),
        (forged_reply(nonce=["now"]), "a reply to another request"),
        (
            forged_reply(loss_before=[0.5]),
            "loss_before [0.5], which is not a finite number for each",
        ),
        (forged_reply(loss_before=[0.5, float("nan")]), "which is not a finite number"),
        (forged_reply(loss_before=[0.5, True]), "which is not a finite number"),
        (forged_reply(loss_before=[0.5, 10**400]), "which is not a finite number"),
        (
            forged_reply(loss_before=[0.5, float("-inf")]),
            "which is not a finite number",
        ),
        (forged_reply(loss_before=None), "loss_before None"),
        (
            forged_reply(loss_after=[0.5, 0.5]),
            "loss_after, which the server did not request",
        ),
        (forged_reply([torch.ones(6)]), "tensors ['0'] instead of ['0', '1']"),
        (
            forged_reply([torch.ones(6), torch.ones(5)]),
            "an update of shape [5] 'float32' in 20 bytes instead of [6] float32",
        ),
        (
            forged_reply([torch.ones(6), torch.ones(6).double()]),
            "'float64' in 48 bytes",
        ),
        (forged_reply([torch.ones(6), torch.ones(2, 3)]), "an update of shape [2, 3]"),
        (
            forged_reply([torch.ones(6), torch.full((6,), float("nan"))]),
            "an update that is not finite (nan)",
        ),
        (
            forged_reply([torch.ones(6), torch.full((6,), float("inf"))]),
            "an update that is not finite (inf)",
        ),
        (
            forged_reply([torch.ones(6), torch.full((6,), 5.0)]),
            "an update of length 12.2474, longer than 10",
        ),
        (
            forged_reply([torch.ones(6), torch.ones(10**6)]),
            "a reply of 4000024 bytes, more than",
        ),
        (
            forged_reply(refused="its policy does not allow 8 local steps"),
            "a refusal: its policy does not allow 8",
        ),
    ],
)
def test_forged_replies_are_named(forged: NodeMessage, words: str) -> None:
    found = refusal_reason(forged, REQUEST, {"yesterday"})
    assert words in found


def test_bytes_that_do_not_match_their_form() -> None:
    claim = TensorBytes("float32", (6,), b"\0" * 23)
    bad = replace(
        forged_reply(), tensors={"0": claim, "1": TensorBytes.of(torch.zeros(6))}
    )
    assert "in 23 bytes" in refusal_reason(bad, REQUEST)
    with pytest.raises(UpdateRefused, match="23 bytes are not a tensor"):
        claim.vector()
    huge = TensorBytes("float32", (10**15,), b"\0" * 24)
    with pytest.raises(UpdateRefused):
        huge.vector()
    with pytest.raises(UpdateRefused):
        TensorBytes("object", (3,), b"\0" * 24).vector()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_vectors_survive_the_way(dtype: torch.dtype) -> None:
    vector = torch.randn(17, dtype=dtype)
    assert torch.equal(TensorBytes.of(vector).vector(), vector)


def test_a_message_without_the_format_of_poise() -> None:
    metadata = SimpleNamespace(src_node_id=77)
    contents: list[Any] = [
        {},
        {"facts": {}},
        {"facts": {"json": "{"}, "vectors": {}},
        {"facts": {"json": "[1]"}, "vectors": {}},
        {"facts": {"json": 3}, "vectors": {}},
        {"facts": {"json": "[" * 100_000}, "vectors": {}},
    ]
    for content in contents:
        with pytest.raises(UpdateRefused, match="a message that cannot be read"):
            NodeMessage.read(SimpleNamespace(content=content, metadata=metadata))
    long = {"facts": {"json": f'"{"x" * 2_000_000}"'}, "vectors": {}}
    with pytest.raises(UpdateRefused, match="2000002 bytes of facts"):
        NodeMessage.read(SimpleNamespace(content=long, metadata=metadata))
