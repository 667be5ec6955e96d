"""Letters to nodes and their replies, through Flower; what a lost node did not answer is asked
again.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

from poise.backends.flower.messages import FlowerMessage, NodeMessage, words
from poise.core.errors import InvalidOption, UpdateRefused

PAUSE = 0.2  # seconds between two looks into the mailbox
CRASHES = 3  # how often the server repeats a request after the app on the node failed
AWAY = (3, 4, 5)  # Flower's errors of a node that is away: message, reply, or node unavailable
# seconds after which a node is asked whether it was started anew; then twice as many, and so on
SILENCE = 45.0
# Flower's errors of an app that it could not load, that raised, or whose process ended. poise
# answers its own
# exceptions with a reason, so these come from Flower: it failed before or after poise's code ran.
FAILED = (1, 2, 8)


@dataclass(frozen=True)
class Transport:
    """The way to the nodes.

    Args:
        grid: Flower's Grid.
        nodes: Flower's number of the node of each client, as its key was registered.
        run: names the run, for the nodes' own records.
        task: the table of the task, which nodes build their model from.
        state: the name under which nodes keep what their clients remember between rounds.
        members: the number in the deployment of each client, where some have left (`among`); None:
            client i is node i.
    """

    grid: Any
    nodes: Mapping[int, int]
    run: str = ""
    task: Mapping[str, Any] = field(default_factory=dict)
    state: str = ""  # names what nodes keep between rounds; the same when a run is taken up
    members: tuple[int, ...] | None = None
    boots: dict[int, str] = field(
        default_factory=dict
    )  # by node: the process that its last reply came from

    def among(self, members: Sequence[int]) -> Transport:
        """The way to these nodes and no others; client k is the k-th of them, as in a federation
        without the rest.
        """
        chosen = tuple(int(m) for m in members)
        return replace(self, nodes={k: self.nodes[m] for k, m in enumerate(chosen)}, members=chosen)

    def number(self, client: int) -> int:
        """A client's number in the deployment: what its node calls itself."""
        return client if self.members is None else self.members[client]

    def common(self, kind: str, client: int) -> dict[str, Any]:
        """What every request says, with a name of its own."""
        nonce = secrets.token_hex(16)
        who = self.number(client)
        return {
            "kind": kind,
            "run": self.run,
            "nonce": nonce,
            "client": who,
            "task": dict(self.task),
        }

    def ask(
        self, letters: Mapping[int, NodeMessage], patience: float
    ) -> dict[int, NodeMessage | str]:
        """The reply of each client, or in words why there is none; a client gets ``patience``
        seconds in all.
        """
        box, answers = Outbox(self), dict[int, NodeMessage | str]()
        names = {box.put(client, letter, patience): client for client, letter in letters.items()}
        while len(answers) < len(letters):
            answers |= {names[name]: reply for name, reply in box.look().items()}
            if len(answers) < len(letters):
                time.sleep(PAUSE)
        return answers


@dataclass
class _Sent:
    """A letter that has no answer yet."""

    client: int
    letter: NodeMessage
    patience: float
    until: float
    due: bool = True  # it has to be sent, for the first time or once more
    messages: list[str] = field(
        default_factory=list
    )  # Flower's names of it; an answer to any of them will do
    crashes: int = 0
    boot: str = ""  # of the node's process that it went to, as far as that is known
    silence: float = SILENCE  # seconds until the node is asked whether it is still that process
    asked: float = 0.0  # when that, or the letter itself, was last sent


@dataclass
class Outbox:
    """Letters that are out. What a lost node did not answer is sent again.

    A piece of work depends on its address only, so that asking for it a second time changes
    nothing. Flower reports a node that is away, but not one that died and was back before anybody
    looked: with it, all that it had been sent is gone. So every reply names the process it comes
        from, and a node that is silent for long is asked for that name.
    """

    post: Transport
    _out: dict[str, _Sent] = field(default_factory=dict)
    _calls: dict[str, str] = field(
        default_factory=dict
    )  # by Flower's name of the question: the letter it is about

    def put(self, client: int, letter: NodeMessage, patience: float) -> str:
        """Take a letter that is to be sent; the name under which `look` has the answer."""
        name = str(letter.facts["nonce"])
        self._out[name] = _Sent(client, letter, patience, time.monotonic() + patience)
        return name

    def drop(self, name: str) -> None:
        """Do not wait for this answer any more."""
        self._out.pop(name, None)

    def look(self) -> dict[str, NodeMessage | str]:
        """The answers that have come since the last look; in words, why there will be none."""
        self.send()
        self._call()
        waiting = {message: name for name, sent in self._out.items() for message in sent.messages}
        found: dict[str, NodeMessage | str] = {}
        every = [*waiting, *self._calls]
        for message in self.post.grid.pull_messages(every) if every else ():
            to = message.metadata.reply_to_message_id
            if to in self._calls:
                self._told(self._calls.pop(to), message)
            elif (name := waiting.get(to)) in self._out and not self._again(
                self._out[name], to, message
            ):
                found[name] = self._opened(self._out[name], message)
        now = time.monotonic()
        for name, sent in self._out.items():
            if name not in found and now > sent.until:
                found[name] = f"nothing within {sent.patience:g} seconds"
        for name in found:
            del self._out[name]
        return found

    def _opened(self, sent: _Sent, message: FlowerMessage) -> NodeMessage | str:
        reply = _opened(message)
        if not isinstance(reply, str) and isinstance(boot := reply.facts.get("boot"), str):
            self.post.boots[self.post.nodes[sent.client]] = boot
        return reply

    @staticmethod
    def _again(sent: _Sent, to: str, message: FlowerMessage) -> bool:
        """Whether a letter has to be sent once more: its node was away, or the app there
        crashed.
        """
        code = message.error.code if message.has_error() else None
        sent.crashes += code in FAILED
        again = code in AWAY or (code in FAILED and sent.crashes <= CRASHES)
        if again:
            sent.messages.remove(to)
            sent.due = not sent.messages
        return again

    def send(self) -> None:
        """Push the letters that are to be sent, to those who are there; the others stay for the
        next time.
        """
        due = {name: sent for name, sent in self._out.items() if sent.due}
        for name, message in self._pushed(
            {name: sent.letter for name, sent in due.items()}
        ).items():
            sent = due[name]
            sent.messages.append(message)
            sent.due, sent.asked = False, time.monotonic()
            sent.boot = self.post.boots.get(self.post.nodes[sent.client], "")

    def _call(self) -> None:
        """Ask those who have been silent for long which process they are."""
        now, out = time.monotonic(), self._out
        silent = [
            name for name, s in out.items() if not s.due and s.boot and now > s.asked + s.silence
        ]
        questions = {
            name: NodeMessage(self.post.common("call", out[name].client)) for name in silent
        }
        for name, message in self._pushed(questions).items():
            self._calls[message] = name
            out[name].asked, out[name].silence = now, 2 * out[name].silence

    def _told(self, name: str, message: FlowerMessage) -> None:
        """Send a letter again where the process that had it is gone."""
        sent, reply = self._out.get(name), _opened(message)
        if (
            sent is None
            or isinstance(reply, str)
            or not isinstance(boot := reply.facts.get("boot"), str)
        ):
            return
        sent.due, sent.boot = sent.due or boot != sent.boot, boot
        self.post.boots[self.post.nodes[sent.client]] = boot

    def _pushed(self, letters: Mapping[str, NodeMessage]) -> dict[str, str]:
        """Push letters to those who are there; Flower's names of the messages."""
        if not letters:
            return {}
        grid, present = self.post.grid, set(self.post.grid.get_node_ids())
        there = [name for name in letters if self.post.nodes[self._out[name].client] in present]
        messages = [
            grid.create_message(
                letters[name].content(),
                f"query.{letters[name].facts['kind']}",
                self.post.nodes[self._out[name].client],
                self.post.run,
                max(self._out[name].until - time.monotonic(), 1.0),
            )
            for name in there
        ]
        pushed = grid.push_messages(messages) if messages else ()
        return {name: message for name, message in zip(there, pushed, strict=True) if message}


def _opened(message: FlowerMessage) -> NodeMessage | str:
    if message.has_error():
        return f"error {message.error.code} of its node: {words(message.error.reason, 300)}"
    try:
        return NodeMessage.read(message)
    except UpdateRefused as error:
        return error.message


_post: ContextVar[Transport | None] = ContextVar("post", default=None)


@contextmanager
def connected(post: Transport) -> Iterator[None]:
    """Runs that begin inside the block, with the backend ``flower``, reach their nodes this way."""
    token = _post.set(post)
    try:
        yield
    finally:
        _post.reset(token)


def current() -> Transport:
    """The way to the nodes of the block that this is called from."""
    found = _post.get()
    if found is None:
        raise InvalidOption(
            "the backend 'flower' works with the nodes of a deployment",
            "poise deploy run exp.toml --to DIR, or poise deploy resume|unlearn RUN --to DIR",
        )
    return found
