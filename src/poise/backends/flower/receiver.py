"""Replies as they come in: piece by piece, and no more of them than was asked for.

Flower's own ``pull_messages`` takes a reply in whole before anybody can look at it, waits for a
node that is slow to send, and raises where one reply cannot be put together: one node could fill
the server's memory, hold up a round, or end the run of all. This makes the same calls under a
limit, and what is wrong with a reply is said of it alone.
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

LEAST = 512  # bytes that every piece counts for: a reply in very many small ones is refused as well
MISSING = 3  # Flower's error of a reply that is not there any more; it is asked for again


class TooLarge(Exception):
    """More has come than a reply can have."""


@dataclass(frozen=True)
class Reply:
    """A reply as `poise.backends.flower.transport` reads it; who it is from is what the SuperLink
    says, not what it says itself.
    """

    metadata: Any
    whole: Any = None
    error: Any = None  # Flower's, in place of a content
    refusal: str = ""

    def has_error(self) -> bool:
        """Whether there is one."""
        return self.error is not None

    @property
    def content(self) -> Any:
        """What was sent; raises where it was not taken in."""
        if self.refusal:
            raise UpdateRefused(self.refusal)
        return self.whole


@dataclass
class Incoming:
    """A reply of which some pieces may still be on their way."""

    metadata: Any
    pieces: list[str]  # ids of those that are not here yet, in the order in which nodes send them
    most: int
    here: dict[str, bytes] = field(default_factory=dict)
    taken: int = 0


@dataclass
class ReplyReceiver:
    """Flower's Grid, whose replies are taken in up to `NodeMessage.most_in_reply` of the letter
    that they answer.
    """

    grid: Any
    _most: dict[str, int] = field(default_factory=dict, repr=False)
    _coming: dict[str, Incoming] = field(default_factory=dict, repr=False)
    _limit: float = field(default=float("inf"), repr=False)

    def __post_init__(self) -> None:
        # Flower has no way to ask how large a piece is; its HTTP client calls this before it reads
        # one
        self._client._client.event_hooks = {"response": [self._look]}

    @property
    def _client(self) -> Any:
        return self.grid._runtime_client

    def get_node_ids(self) -> Iterable[int]:
        """As the Grid says."""
        found: Iterable[int] = self.grid.get_node_ids()
        return found

    def create_message(self, *arguments: Any) -> Any:
        """As the Grid makes it."""
        return self.grid.create_message(*arguments)

    def push_messages(self, messages: Iterable[Any]) -> list[str]:
        """As the Grid does, noting how much may come back; no names where the SuperLink was lost on
        the way.
        """
        from flwr.supercore.inflatable.inflatable_utils import ObjectPushError

        sent = list(messages)
        limits = [NodeMessage.read(message).most_in_reply for message in sent]
        try:
            names = list(self.grid.push_messages(sent))
        except (
            ObjectPushError
        ):  # a SuperLink that was started anew knows nothing of pieces that were under way
            return [""] * len(sent)
        self._most |= {name: most for name, most in zip(names, limits, strict=False) if name}
        return names

    def pull_messages(self, names: Iterable[str]) -> list[Reply]:
        """Replies that are here in whole, or of which it is clear that they are not used."""
        from flwr.proto.runtime_pb2 import PullAppMessagesRequest

        asked = list(names)
        new = [
            name for name in asked if name not in self._coming
        ]  # the SuperLink says only once that a reply is there
        found = self._client.PullMessages(PullAppMessagesRequest(message_ids=new))
        for message, tree in zip(found.messages_list, found.message_object_trees, strict=True):
            to = message.metadata.reply_to_message_id
            pieces = list(dict.fromkeys(_ids(tree)))
            self._coming[to] = Incoming(message.metadata, pieces, self._most.pop(to, 0))
        replies = {name: self._taken(self._coming[name]) for name in asked if name in self._coming}
        done = {name: reply for name, reply in replies.items() if reply is not None}
        for name in done:
            self._confirm(self._coming.pop(name).metadata.message_id)
        return list(done.values())

    def _taken(self, coming: Incoming) -> Reply | None:
        """The reply, if there is something to say about it by now."""
        from flwr.app import Error

        try:
            if len(coming.pieces) * LEAST > coming.most:
                raise TooLarge
            while coming.pieces:
                content = self._piece(coming.pieces[0], coming.most - coming.taken)
                if content is None:
                    return None
                coming.taken += max(len(content), LEAST)
                coming.here[coming.pieces.pop(0)] = content
            return Reply(coming.metadata, *_put_together(coming))
        except LookupError:
            return Reply(coming.metadata, error=Error(MISSING, "parts of the reply are gone"))
        except TooLarge:
            return Reply(
                coming.metadata,
                refusal=f"a reply of more than {coming.most} bytes, the most it can have",
            )
        except UpdateRefused as error:
            return Reply(coming.metadata, refusal=error.message)

    def _piece(self, name: str, room: int) -> bytes | None:
        """One piece; None while it is on its way. Raises `TooLarge` before it is read where there
        is no room for it.
        """
        from flwr.proto.message_pb2 import PullObjectRequest

        self._limit = room + LEAST
        try:
            request = PullObjectRequest(
                node=self.grid.node, run_id=self.grid.run.run_id, object_id=name
            )
            found = self._client.PullObject(request)
        finally:
            self._limit = float("inf")
        if not found.object_found:
            raise LookupError(name)
        if not found.object_available:
            return None
        if len(found.object_content) > room:
            raise TooLarge
        content: bytes = found.object_content
        return content

    def _look(self, response: Response) -> None:
        if int(response.headers.get("content-length", 0)) > self._limit:
            raise TooLarge

    def _confirm(self, name: str) -> None:
        """Let the SuperLink forget a reply; what a node still sends of one that was refused, it
        does not store.
        """
        from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest

        run = self.grid.run.run_id
        request = ConfirmMessageReceivedRequest(
            node=self.grid.node, run_id=run, message_object_id=name
        )
        self._client.ConfirmMessageReceived(request)


def _ids(tree: ObjectTree) -> Iterator[str]:
    """Names of a message's pieces: what something is made of comes before it."""
    for child in tree.children:
        yield from _ids(child)
    yield tree.object_id


def _put_together(coming: Incoming) -> tuple[Any, Any]:
    """The content of a reply, or its error."""
    from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

    try:
        if sum(_chunks(coming.here)) > coming.most:
            raise TooLarge
        message: Any = inflate_object_from_contents(coming.metadata.message_id, coming.here)
        return (None, message.error) if message.has_error() else (message.content, None)
    except TooLarge:
        raise
    except Exception as error:  # whatever a node made up
        raise UpdateRefused(f"a message that cannot be read ({type(error).__name__})") from error


def _chunks(pieces: dict[str, bytes]) -> Iterator[int]:
    """Sizes of the chunks that arrays are made of, each as often as it is named: few bytes can name
    one very often.
    """
    from flwr.supercore.inflatable.inflatable_object import (
        get_object_head_values_from_object_content as head_of,
    )

    for content in pieces.values():
        kind, children, length = head_of(content)
        if kind == "Array":
            for k in json.loads(content[len(content) - length :])["arraychunk_ids"]:
                yield len(pieces[children[k]])
