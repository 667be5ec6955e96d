"""Receive replies in pieces, up to a size limit per reply.

Flower's own ``pull_messages`` downloads a whole reply before anybody can check it,
waits for slow senders, and raises if it cannot assemble one reply. A single node could
fill the server's memory, delay a round, or end the run. This module makes the same
calls under a limit, and reports a bad reply without affecting the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from poise.backends.flower.messages import NodeMessage
from poise.core.errors import UpdateRefused

if TYPE_CHECKING:
    from flwr.proto.message_pb2 import ObjectTree
    from httpx import Response

MIN_PIECE_BYTES = (
    512  # every piece counts for at least this much, so many tiny ones are refused
)
MISSING = (
    3  # Flower's error for a reply that is no longer available; the request is repeated
)


class TooLarge(Exception):
    """A reply exceeds its limit."""


@dataclass(frozen=True)
class ReceivedReply:
    """A reply in the form that `NodeMessage.read` expects.

    The metadata come from the SuperLink, so a node cannot forge the sender.
    """

    metadata: Any
    whole: Any = None
    error: Any = None  # Flower's error, if the reply has one instead of a content
    refusal: str = ""

    def has_error(self) -> bool:
        """Whether the reply carries an error of Flower."""
        return self.error is not None

    @property
    def content(self) -> Any:
        """The content; raises `UpdateRefused` if the receiver refused the reply."""
        if self.refusal:
            raise UpdateRefused(self.refusal)
        return self.whole


@dataclass
class Incoming:
    """A reply whose pieces are still arriving."""

    metadata: Any
    # ids of the missing pieces, in the order in which nodes send them
    missing: list[str]
    max_bytes: int
    pieces: dict[str, bytes] = field(default_factory=dict)
    received_bytes: int = 0


@dataclass
class ReplyReceiver:
    """Flower's Grid, with replies limited to their request's `max_reply_bytes`."""

    grid: Any
    # by id of the request
    _max_bytes: dict[str, int] = field(default_factory=dict, repr=False)
    _incoming: dict[str, Incoming] = field(default_factory=dict, repr=False)
    _response_limit: float = field(default=float("inf"), repr=False)

    def __post_init__(self) -> None:
        # Flower cannot tell how large a piece is. Its HTTP client calls this hook
        # before it reads
        # the body of a response.
        self._client._client.event_hooks = {"response": [self._check_response]}

    @property
    def _client(self) -> Any:
        return self.grid._runtime_client

    def get_node_ids(self) -> Iterable[int]:
        """The ids of all nodes that are online."""
        node_ids: Iterable[int] = self.grid.get_node_ids()
        return node_ids

    def create_message(self, *arguments: Any) -> Any:
        """A message of Flower, as the Grid creates it."""
        return self.grid.create_message(*arguments)

    def push_messages(self, flower_messages: Iterable[Any]) -> list[str]:
        """Push messages and note the limits of their replies; returns their ids.

        All ids are empty if the connection to the SuperLink was lost.
        """
        from flwr.supercore.inflatable.inflatable_utils import ObjectPushError

        requests = list(flower_messages)
        limits = [NodeMessage.read(request).max_reply_bytes for request in requests]
        try:
            message_ids = list(self.grid.push_messages(requests))
        except (
            ObjectPushError
        ):  # a restarted SuperLink does not know half-sent messages
            return [""] * len(requests)
        for message_id, limit in zip(message_ids, limits, strict=False):
            if message_id:
                self._max_bytes[message_id] = limit
        return message_ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[ReceivedReply]:
        """Replies to these messages that have arrived completely or were refused."""
        wanted = list(message_ids)
        self._announce([name for name in wanted if name not in self._incoming])
        replies = []
        for message_id in wanted:
            if message_id not in self._incoming:
                continue
            reply = self._receive(self._incoming[message_id])
            if reply is not None:
                replies.append(reply)
                self._confirm(self._incoming.pop(message_id).metadata.message_id)
        return replies

    def _announce(self, message_ids: list[str]) -> None:
        """Ask which messages have replies; the SuperLink announces a reply once."""
        from flwr.proto.runtime_pb2 import PullAppMessagesRequest

        response = self._client.PullMessages(
            PullAppMessagesRequest(message_ids=message_ids)
        )
        trees = response.message_object_trees
        for announced, tree in zip(response.messages_list, trees, strict=True):
            request_id = announced.metadata.reply_to_message_id
            pieces = list(dict.fromkeys(_piece_ids(tree)))
            limit = self._max_bytes.pop(request_id, 0)
            self._incoming[request_id] = Incoming(
                announced.metadata, pieces, max_bytes=limit
            )

    def _receive(self, incoming: Incoming) -> ReceivedReply | None:
        """Download available pieces; returns the reply once complete or refused."""
        from flwr.app import Error

        metadata = incoming.metadata
        try:
            if len(incoming.missing) * MIN_PIECE_BYTES > incoming.max_bytes:
                raise TooLarge
            while incoming.missing:
                room = incoming.max_bytes - incoming.received_bytes
                piece = self._download(incoming.missing[0], room)
                if piece is None:
                    return None
                incoming.received_bytes += max(len(piece), MIN_PIECE_BYTES)
                incoming.pieces[incoming.missing.pop(0)] = piece
            return _assemble(incoming)
        except LookupError:
            return ReceivedReply(
                metadata, error=Error(MISSING, "parts of the reply are gone")
            )
        except TooLarge:
            refusal = f"a reply larger than the limit of {incoming.max_bytes} bytes"
            return ReceivedReply(metadata, refusal=refusal)
        except UpdateRefused as error:
            return ReceivedReply(metadata, refusal=error.message)

    def _download(self, piece_id: str, room: int) -> bytes | None:
        """One piece, or None while the node is still sending it.

        Raises `TooLarge` before reading a piece of more than ``room`` bytes.
        """
        from flwr.proto.message_pb2 import PullObjectRequest

        self._response_limit = room + MIN_PIECE_BYTES
        try:
            request = PullObjectRequest(
                node=self.grid.node, run_id=self.grid.run.run_id, object_id=piece_id
            )
            response = self._client.PullObject(request)
        finally:
            self._response_limit = float("inf")
        if not response.object_found:
            raise LookupError(piece_id)
        if not response.object_available:
            return None
        if len(response.object_content) > room:
            raise TooLarge
        content: bytes = response.object_content
        return content

    def _check_response(self, response: Response) -> None:
        if int(response.headers.get("content-length", 0)) > self._response_limit:
            raise TooLarge

    def _confirm(self, message_id: str) -> None:
        """Let the SuperLink delete a reply; ignore what its node still sends."""
        from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest

        request = ConfirmMessageReceivedRequest(
            node=self.grid.node,
            run_id=self.grid.run.run_id,
            message_object_id=message_id,
        )
        self._client.ConfirmMessageReceived(request)


def _piece_ids(tree: ObjectTree) -> Iterator[str]:
    """The ids of a message's pieces; parts precede the objects that contain them."""
    for child in tree.children:
        yield from _piece_ids(child)
    yield tree.object_id


def _assemble(incoming: Incoming) -> ReceivedReply:
    """The reply made of all pieces."""
    from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

    metadata = incoming.metadata
    try:
        if sum(_chunk_sizes(incoming.pieces)) > incoming.max_bytes:
            raise TooLarge
        flower_message: Any = inflate_object_from_contents(
            metadata.message_id, incoming.pieces
        )
        if flower_message.has_error():
            return ReceivedReply(metadata, error=flower_message.error)
        return ReceivedReply(metadata, whole=flower_message.content)
    except TooLarge:
        raise
    except Exception as error:  # a node can send arbitrary bytes
        raise UpdateRefused(
            f"a message that cannot be read ({type(error).__name__})"
        ) from error


def _chunk_sizes(pieces: dict[str, bytes]) -> Iterator[int]:
    """Sizes of the chunks of all arrays, counted as often as an array names them.

    A few bytes can name the same chunk very often.
    """
    from flwr.supercore.inflatable.inflatable_object import (
        get_object_head_values_from_object_content as head_of,
    )

    for content in pieces.values():
        kind, children, length = head_of(content)
        if kind == "Array":
            body = json.loads(content[len(content) - length :])
            for k in body["arraychunk_ids"]:
                yield len(pieces[children[k]])
