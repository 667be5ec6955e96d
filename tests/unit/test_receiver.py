"""The receiver limits replies: it does not read oversized ones, and unreadable ones affect
no other reply."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("flwr", reason="the extra [flower] is not installed")

from flwr.app import Metadata
from flwr.app.message import array as arrays
from flwr.app.message import make_message
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError

from poise.backends.flower.messages import MAX_FACT_BYTES, NodeMessage, TensorBytes
from poise.backends.flower.receiver import ReplyReceiver
from poise.backends.flower.transport import Outbox, Transport
from poise.core.errors import UpdateRefused

ENTRIES = 1000
REQUEST = NodeMessage(
    {"nonce": "now", "versions": [0, 1]}, {"0": TensorBytes.of(torch.zeros(ENTRIES))}
)
LIMIT = MAX_FACT_BYTES + 2 * ENTRIES * 4
NODE = 77


@dataclass
class SuperLink:
    """What a Grid talks to, with the pieces of replies; ``read`` is how much of them was read."""

    pieces: dict[str, bytes] = field(default_factory=dict)
    waiting: list[Any] = field(default_factory=list)
    late: set[str] = field(default_factory=set)
    read: int = 0
    forgotten: list[str] = field(default_factory=list)
    told: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._client = SimpleNamespace(event_hooks={})

    def put(self, name: str, content: Any) -> dict[str, bytes]:
        """A reply to the message ``name``; its pieces."""
        claims = Metadata(
            1, "", 1234, 1, "what the node says", "", 0.0, 60.0, "query.work"
        )
        reply = make_message(claims, content)
        with no_object_id_recompute():
            mine = {
                key: piece.deflate()
                for key, piece in get_all_nested_objects(reply).items()
            }
            tree = get_object_tree(reply)
        self.pieces |= mine
        metadata = SimpleNamespace(
            message_id=tree.object_id, reply_to_message_id=name, src_node_id=NODE
        )
        self.waiting.append((SimpleNamespace(metadata=metadata), tree))
        return mine

    def PullMessages(self, request: Any) -> Any:
        assert not self.told & set(
            request.message_ids
        )  # to a second question it says that there is no such message
        found = [
            pair
            for pair in self.waiting
            if pair[0].metadata.reply_to_message_id in request.message_ids
        ]
        self.told |= {message.metadata.reply_to_message_id for message, _ in found}
        self.waiting = [pair for pair in self.waiting if pair not in found]
        return SimpleNamespace(
            messages_list=[m for m, _ in found],
            message_object_trees=[t for _, t in found],
        )

    def PullObject(self, request: Any) -> Any:
        content = self.pieces.get(request.object_id)
        there = content is not None and request.object_id not in self.late
        size = len(content or b"") if there else 0
        for hook in self._client.event_hooks["response"]:
            hook(SimpleNamespace(headers={"content-length": str(size)}))
        self.read += size
        return SimpleNamespace(
            object_found=content is not None,
            object_available=there,
            object_content=content if there else b"",
        )

    def ConfirmMessageReceived(self, request: Any) -> None:
        self.forgotten.append(request.message_object_id)


def connected(*names: str) -> tuple[SuperLink, ReplyReceiver]:
    """A SuperLink, and the way in for replies to these messages."""
    link = SuperLink()
    grid = SimpleNamespace(
        _runtime_client=link,
        node=None,
        run=SimpleNamespace(run_id=1),
        push_messages=lambda messages: list(names),
    )
    receiver = ReplyReceiver(grid)
    asked = [
        SimpleNamespace(
            content=REQUEST.content(), metadata=SimpleNamespace(src_node_id=1)
        )
        for _ in names
    ]
    assert receiver.push_messages(asked) == list(names)
    return link, receiver


def answer(entries: int = ENTRIES, count: int = 2) -> NodeMessage:
    vectors = [torch.arange(k, entries + k, dtype=torch.float32) for k in range(count)]
    return NodeMessage(
        {"nonce": "now"}, {str(k): TensorBytes.of(v) for k, v in enumerate(vectors)}
    )


def refusal(receiver: ReplyReceiver, name: str = "a") -> str:
    (reply,) = receiver.pull_messages([name])
    assert not reply.has_error()
    with pytest.raises(UpdateRefused) as caught:
        NodeMessage.read(reply)
    return caught.value.message


def test_a_reply_in_order_comes_through() -> None:
    link, receiver = connected("a")
    assert receiver.pull_messages(["a"]) == []
    link.put("a", answer().content())
    (reply,) = receiver.pull_messages(["a"])
    assert reply.metadata.reply_to_message_id == "a"
    assert NodeMessage.read(reply) == NodeMessage(
        answer().facts, answer().tensors, NODE
    )
    assert link.forgotten == [reply.metadata.message_id]


def test_what_is_too_large_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    link, receiver = connected("a", "b")
    monkeypatch.setattr(arrays, "FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE", 100_000)
    link.put("a", answer(3_000_000).content())
    assert refusal(receiver) == f"a reply larger than the limit of {LIMIT} bytes"
    assert link.read <= LIMIT
    assert len(link.forgotten) == 1
    before = link.read
    monkeypatch.setattr(
        arrays, "FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE", 10**9
    )  # in one piece
    link.put("b", answer(3_000_000, 1).content())
    assert "a reply larger than the limit" in refusal(receiver, "b")
    assert link.read - before < 5000


def test_what_is_too_large_is_refused_before_all_of_it_is_there() -> None:
    link, receiver = connected("a")
    pieces = link.put("a", answer(7_000_000, 1).content())
    chunks = [
        key for key, content in pieces.items() if content.startswith(b"ArrayChunk")
    ]
    assert len(chunks) > 5
    link.late = set(
        list(pieces)[list(pieces).index(chunks[1]) :]
    )  # the first of them has come
    assert "a reply larger than the limit" in refusal(receiver)


def test_without_a_size_beforehand_a_piece_is_refused_when_it_is_here() -> None:
    link, receiver = connected("a")
    link._client.event_hooks = {"response": []}
    link.put("a", answer(3_000_000, 1).content())
    assert "a reply larger than the limit" in refusal(receiver)


def test_a_few_bytes_that_name_one_chunk_very_often() -> None:
    link, receiver = connected("a")
    pieces = link.put("a", answer().content())
    for key, content in pieces.items():
        if content.startswith(b"Array "):
            link.pieces[key] = content.replace(
                b'"arraychunk_ids": [0]',
                b'"arraychunk_ids": [' + b"0, " * 10**5 + b"0]",
            )
            head, _, body = link.pieces[key].partition(b"\0")
            link.pieces[key] = (
                head.rpartition(b" ")[0] + f" {len(body)}".encode() + b"\0" + body
            )
    assert "a reply larger than the limit" in refusal(receiver)
    assert link.read < LIMIT  # it was all read, and would have been 800 MB


def test_very_many_pieces() -> None:
    link, receiver = connected("a")
    link.put("a", answer(1, 3000).content())
    assert "a reply larger than the limit" in refusal(receiver)
    assert link.read == 0


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"no head",
        b"Array  0\0",
        b"ArrayRecord  2\0{}",
        b"Message  0\0",
        b"Array  9\0" * 9,
    ],
)
def test_what_cannot_be_put_together_is_said_of_that_reply_alone(bad: bytes) -> None:
    link, receiver = connected("a", "b")
    for key in link.put("a", answer().content()):
        link.pieces[key] = bad
    link.put("b", NodeMessage({"nonce": "other"}).content())
    first, second = receiver.pull_messages(["a", "b"])
    with pytest.raises(UpdateRefused, match="a message that cannot be read"):
        NodeMessage.read(first)
    assert NodeMessage.read(second).facts == {"nonce": "other"}


def test_a_reply_on_its_way_holds_up_nobody() -> None:
    link, receiver = connected("a", "b")
    link.late = set(list(link.put("a", answer().content()))[:1])
    link.put("b", NodeMessage({"nonce": "other"}).content())
    assert [
        reply.metadata.reply_to_message_id
        for reply in receiver.pull_messages(["a", "b"])
    ] == ["b"]
    assert receiver.pull_messages(["a"]) == []
    link.late.clear()
    (reply,) = receiver.pull_messages(["a"])
    assert NodeMessage.read(reply).tensors == answer().tensors


def test_a_reply_that_is_gone_is_asked_for_again() -> None:
    link, receiver = connected("a")
    link.pieces.pop(next(iter(link.put("a", answer().content()))))
    (reply,) = receiver.pull_messages(["a"])
    assert reply.has_error()
    assert reply.error is not None
    assert reply.error.code == 3


def test_what_a_lost_superlink_did_not_get_has_no_name_and_is_sent_again() -> None:
    def lost(messages: Any) -> list[str]:
        raise ObjectPushError("piece", 1, "session")

    receiver = connected()[1]
    receiver.grid.push_messages = lost
    asked = [
        SimpleNamespace(
            content=REQUEST.content(), metadata=SimpleNamespace(src_node_id=1)
        )
        for _ in range(2)
    ]
    assert receiver.push_messages(asked) == ["", ""]
    grid = SimpleNamespace(
        get_node_ids=lambda: [NODE],
        create_message=lambda content, *more: asked[0],
        pull_messages=lambda names: [],
        push_messages=receiver.push_messages,
    )
    outbox = Outbox(Transport(grid, {0: NODE}))
    outbox.put(0, NodeMessage({"kind": "work", "nonce": "now"}), 60.0)
    assert outbox.collect() == {}
    receiver.grid.push_messages = lambda messages: ["again"]
    outbox.collect()
    (sent,) = outbox._pending.values()
    assert (sent.message_ids, sent.due) == (["again"], False)
