"""Requests to nodes and their replies, through Flower; lost requests are sent again."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

from poise.backends.flower.messages import FlowerMessage, NodeMessage, printable
from poise.core.errors import InvalidOption, UpdateRefused
from poise.evidence.countersign import Countersignatures

PAUSE = 0.2  # seconds between two checks for replies
CRASHES = 3  # how often the server repeats a request after the app on the node failed
# Flower's errors for an absent node: message, reply, or node unavailable
AWAY = (3, 4, 5)
# seconds of silence until the server checks whether a node restarted; doubled each time
SILENCE = 45.0
# Flower's errors for an app that it could not load, that raised, or whose process ended
# (poise replies to its own errors with a reason, so Flower failed around poise's code)
FAILED = (1, 2, 8)


@dataclass(frozen=True)
class Transport:
    """The connection to the nodes.

    Args:
        grid: Flower's Grid.
        nodes: Flower's node id of each client, as registered with its key.
        run: the name of the run, for the journals of the nodes.
        task: the table of the task, from which nodes build their model.
        state: the name under which nodes store client state between rounds; a resumed
            run has the same name.
        members: each client's number in the deployment, if clients have left (`among`);
            None: client i is node i.
        boots: by node id, the process that sent the node's last reply.
        releases: by node id, the version of poise that the node registered with.
        code: facts of every request about users' code that nodes need.
        countersignatures: checks and keeps the signatures of nodes; None to keep none.
    """

    grid: Any
    nodes: Mapping[int, int]
    run: str = ""
    task: Mapping[str, Any] = field(default_factory=dict)
    state: str = ""
    members: tuple[int, ...] | None = None
    boots: dict[int, str] = field(default_factory=dict)
    releases: dict[int, str] = field(default_factory=dict)
    countersignatures: Countersignatures | None = None
    code: Mapping[str, Any] = field(default_factory=dict)

    def among(self, members: Sequence[int]) -> Transport:
        """The connection to these nodes only; client k is the k-th of them."""
        chosen = tuple(int(m) for m in members)
        nodes = {k: self.nodes[member] for k, member in enumerate(chosen)}
        return replace(self, nodes=nodes, members=chosen)

    def number(self, client: int) -> int:
        """A client's number in the deployment, which its node knows as its own."""
        if self.members is None:
            return client
        return self.members[client]

    def common_facts(self, kind: str, client: int) -> dict[str, Any]:
        """The facts of every request, with a fresh nonce."""
        return {
            "kind": kind,
            "run": self.run,
            "nonce": secrets.token_hex(16),
            "client": self.number(client),
            "task": dict(self.task),
            **self.code,
        }

    def ask(
        self, requests: Mapping[int, NodeMessage], patience: float
    ) -> dict[int, NodeMessage | str]:
        """Send one request per client and wait for all replies.

        A client that sends no reply within ``patience`` seconds gets the reason
        instead.
        """
        outbox = Outbox(self)
        clients: dict[str, int] = {}
        for client, request in requests.items():
            clients[outbox.put(client, request, patience)] = client
        replies: dict[int, NodeMessage | str] = {}
        while True:
            for nonce, reply in outbox.collect().items():
                replies[clients[nonce]] = reply
            if len(replies) == len(requests):
                return replies
            time.sleep(PAUSE)


@dataclass
class _Pending:
    """A request without a reply."""

    client: int
    request: NodeMessage
    patience: float
    deadline: float
    due: bool = True  # must be sent, for the first time or again
    # Flower's ids of the messages with this request; a reply to any of them counts
    message_ids: list[str] = field(default_factory=list)
    crashes: int = 0
    boot: str = ""  # the node's process that received the request, if known
    silence: float = SILENCE  # seconds until the next check of the node's process
    last_sent: float = 0.0  # when the request, or the last check, was sent


@dataclass
class Outbox:
    """Requests that wait for replies; a request is sent again if its node lost it.

    Repeating a request is safe: its result depends on its address only. Flower reports
    a node that is away, but not a node that died and came back between two checks; such
    a node has lost its requests. Every reply therefore names the process that sent it,
    and the outbox asks a node that is silent for long for that name.
    """

    transport: Transport
    _pending: dict[str, _Pending] = field(default_factory=dict)  # by nonce
    # Flower's message id -> nonce
    _checks: dict[str, str] = field(default_factory=dict)

    def put(self, client: int, request: NodeMessage, patience: float) -> str:
        """Accept a request for the next `send`; returns its nonce, for `collect`."""
        nonce = str(request.facts["nonce"])
        deadline = time.monotonic() + patience
        self._pending[nonce] = _Pending(
            client, request, patience=patience, deadline=deadline
        )
        return nonce

    def drop(self, nonce: str) -> None:
        """Stop waiting for the reply to this request."""
        self._pending.pop(nonce, None)

    def collect(self) -> dict[str, NodeMessage | str]:
        """Replies since the last call, by nonce; a text says why none will come."""
        self.send()
        self._check_silent_nodes()
        nonces = {
            message_id: nonce
            for nonce, pending in self._pending.items()
            for message_id in pending.message_ids
        }
        replies: dict[str, NodeMessage | str] = {}
        for flower_message in self._pull([*nonces, *self._checks]):
            message_id = flower_message.metadata.reply_to_message_id
            if message_id in self._checks:
                self._resend_if_restarted(self._checks.pop(message_id), flower_message)
                continue
            nonce = nonces.get(message_id)
            if nonce is None:
                continue
            pending = self._pending[nonce]
            if not self._failed_on_node(pending, message_id, flower_message):
                replies[nonce] = self._read_reply(pending, flower_message)
        now = time.monotonic()
        for nonce, pending in self._pending.items():
            if nonce not in replies and now > pending.deadline:
                replies[nonce] = f"nothing within {pending.patience:g} seconds"
        for nonce in replies:
            del self._pending[nonce]
        return replies

    def send(self) -> None:
        """Send all due requests to online nodes; the others wait for the next call."""
        due = {
            nonce: pending for nonce, pending in self._pending.items() if pending.due
        }
        requests = {nonce: pending.request for nonce, pending in due.items()}
        for nonce, message_id in self._push(requests).items():
            pending = due[nonce]
            pending.message_ids.append(message_id)
            pending.due = False
            pending.last_sent = time.monotonic()
            pending.boot = self.transport.boots.get(self._node(nonce), "")

    def _node(self, nonce: str) -> int:
        """Flower's id of the node that a request is for."""
        return self.transport.nodes[self._pending[nonce].client]

    def _pull(self, message_ids: list[str]) -> Sequence[FlowerMessage]:
        """The messages that answer these."""
        if not message_ids:
            return ()
        flower_messages: Sequence[FlowerMessage] = self.transport.grid.pull_messages(
            message_ids
        )
        return flower_messages

    def _read_reply(
        self, pending: _Pending, flower_message: FlowerMessage
    ) -> NodeMessage | str:
        """The reply to a request, whose process is noted."""
        reply = _parse(flower_message)
        if not isinstance(reply, str) and isinstance(
            boot := reply.facts.get("boot"), str
        ):
            self.transport.boots[self.transport.nodes[pending.client]] = boot
        return reply

    @staticmethod
    def _failed_on_node(
        pending: _Pending, message_id: str, flower_message: FlowerMessage
    ) -> bool:
        """Whether to send the request again: its node was away or its app crashed."""
        if not flower_message.has_error():
            return False
        code = flower_message.error.code
        pending.crashes += code in FAILED
        failed = code in AWAY or (code in FAILED and pending.crashes <= CRASHES)
        if failed:
            pending.message_ids.remove(message_id)
            pending.due = not pending.message_ids
        return failed

    def _check_silent_nodes(self) -> None:
        """Ask nodes that have been silent for long for the name of their process."""
        now = time.monotonic()
        checks = {}
        for nonce, pending in self._pending.items():
            sent_to_known_process = not pending.due and pending.boot
            if sent_to_known_process and now > pending.last_sent + pending.silence:
                checks[nonce] = NodeMessage(
                    self.transport.common_facts("call", pending.client)
                )
        for nonce, message_id in self._push(checks).items():
            self._checks[message_id] = nonce
            self._pending[nonce].last_sent = now
            self._pending[nonce].silence *= 2

    def _resend_if_restarted(self, nonce: str, flower_message: FlowerMessage) -> None:
        """Make a request due again if the process that received it is gone."""
        pending = self._pending.get(nonce)
        reply = _parse(flower_message)
        if pending is None or isinstance(reply, str):
            return
        boot = reply.facts.get("boot")
        if not isinstance(boot, str):
            return
        pending.due = pending.due or boot != pending.boot
        pending.boot = boot
        self.transport.boots[self.transport.nodes[pending.client]] = boot

    def _push(self, messages: Mapping[str, NodeMessage]) -> dict[str, str]:
        """Push messages to nodes that are online; returns Flower's ids by nonce."""
        if not messages:
            return {}
        grid = self.transport.grid
        online = set(grid.get_node_ids())
        nonces = [nonce for nonce in messages if self._node(nonce) in online]
        if not nonces:
            return {}
        flower_messages = [
            grid.create_message(
                messages[nonce].content(),
                f"query.{messages[nonce].facts['kind']}",
                self._node(nonce),
                self.transport.run,
                max(self._pending[nonce].deadline - time.monotonic(), 1.0),
            )
            for nonce in nonces
        ]
        message_ids = grid.push_messages(flower_messages)
        return {
            nonce: name for nonce, name in zip(nonces, message_ids, strict=True) if name
        }


def _parse(flower_message: FlowerMessage) -> NodeMessage | str:
    """The reply in a message of Flower, or why it cannot be used."""
    if flower_message.has_error():
        error = flower_message.error
        return f"error {error.code} of its node: {printable(error.reason, 300)}"
    try:
        return NodeMessage.read(flower_message)
    except UpdateRefused as error:
        return error.message


_transport: ContextVar[Transport | None] = ContextVar("transport", default=None)


@contextmanager
def connected(transport: Transport) -> Iterator[None]:
    """Inside the block, runs with the backend ``flower`` use this transport."""
    token = _transport.set(transport)
    try:
        yield
    finally:
        _transport.reset(token)


def current() -> Transport:
    """The transport of the enclosing `connected` block."""
    transport = _transport.get()
    if transport is None:
        raise InvalidOption(
            "the backend 'flower' works with the nodes of a deployment",
            (
                "poise deploy run exp.toml --to DIR, or poise deploy resume|unlearn RUN "
                "--to DIR"
            ),
        )
    return transport
