"""Letters to nodes and their replies, through Flower; what a lost node did not answer is asked again."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

from poise.backends.letters import Letter, words
from poise.core.errors import InvalidOption, UpdateRefused

PAUSE = 0.2  # seconds between two looks into the mailbox
CRASHES = 3  # how often work is asked for again after the app on the node crashed
AWAY = (3, 4, 5)  # Flower's errors of a node that is away: message, reply, or node unavailable
CRASHED = 8  # Flower's error of an app whose process ended


@dataclass(frozen=True)
class Post:
    """The way to the nodes.

    Args:
        grid: Flower's Grid.
        nodes: Flower's number of the node of each client, as its key was registered.
        run: names the run, for the nodes' own records.
        task: the table of the task, which nodes build their model from.
        state: the name under which nodes keep what their clients remember between rounds.
        members: the number in the deployment of each client, where some have left (`among`); None: client i is node i.
    """

    grid: Any
    nodes: Mapping[int, int]
    run: str = ""
    task: Mapping[str, Any] = field(default_factory=dict)
    state: str = ""  # names what nodes keep between rounds; the same when a run is taken up
    members: tuple[int, ...] | None = None

    def among(self, members: Sequence[int]) -> Post:
        """The way to these nodes and no others; client k is the k-th of them, as in a federation without the rest."""
        chosen = tuple(int(m) for m in members)
        return replace(self, nodes={k: self.nodes[m] for k, m in enumerate(chosen)}, members=chosen)

    def number(self, client: int) -> int:
        """A client's number in the deployment: what its node calls itself."""
        return client if self.members is None else self.members[client]

    def common(self, kind: str, client: int) -> dict[str, Any]:
        """What every request says, with a name of its own."""
        nonce = secrets.token_hex(16)
        who = self.number(client)
        return {"kind": kind, "run": self.run, "nonce": nonce, "client": who, "task": dict(self.task)}

    def ask(self, letters: Mapping[int, Letter], patience: float) -> dict[int, Letter | str]:
        """The reply of each client, or in words why there is none; a client gets ``patience`` seconds in all."""
        box, answers = Mailbox(self), dict[int, Letter | str]()
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
    letter: Letter
    patience: float
    until: float
    message: str = ""  # Flower's name of the message; empty while it has to be sent, or sent again
    crashes: int = 0


@dataclass
class Mailbox:
    """Letters that are out. What a lost node did not answer is sent again.

    A piece of work depends on its address only, so that asking for it a second time changes nothing.
    """

    post: Post
    _out: dict[str, _Sent] = field(default_factory=dict)

    def put(self, client: int, letter: Letter, patience: float) -> str:
        """Take a letter that is to be sent; the name under which `look` has the answer."""
        name = str(letter.facts["nonce"])
        self._out[name] = _Sent(client, letter, patience, time.monotonic() + patience)
        return name

    def drop(self, name: str) -> None:
        """Do not wait for this answer any more."""
        self._out.pop(name, None)

    def look(self) -> dict[str, Letter | str]:
        """The answers that have come since the last look; in words, why there will be none."""
        self.send()
        waiting = {sent.message: name for name, sent in self._out.items() if sent.message}
        found: dict[str, Letter | str] = {}
        for message in self.post.grid.pull_messages(list(waiting)) if waiting else ():
            name = waiting.get(message.metadata.reply_to_message_id)
            if name is not None and not self._again(self._out[name], message):
                found[name] = _opened(message)
        now = time.monotonic()
        for name, sent in self._out.items():
            if name not in found and now > sent.until:
                found[name] = f"nothing within {sent.patience:g} seconds"
        for name in found:
            del self._out[name]
        return found

    @staticmethod
    def _again(sent: _Sent, message: Any) -> bool:
        """Whether a letter has to be sent once more: its node was away, or the app there crashed."""
        code = message.error.code if message.has_error() else None
        sent.crashes += code == CRASHED
        again = code in AWAY or (code == CRASHED and sent.crashes <= CRASHES)
        sent.message = "" if again else sent.message
        return again

    def send(self) -> None:
        """Push the letters that are to be sent, to those who are there; the others stay for the next time."""
        todo = [sent for sent in self._out.values() if not sent.message]
        if not todo:
            return
        grid, present = self.post.grid, set(self.post.grid.get_node_ids())
        there = [sent for sent in todo if self.post.nodes[sent.client] in present]
        messages = [
            grid.create_message(
                sent.letter.content(), f"query.{sent.letter.facts['kind']}", self.post.nodes[sent.client],
                self.post.run, max(sent.until - time.monotonic(), 1.0),
            )
            for sent in there
        ]  # fmt: skip
        for sent, name in zip(there, grid.push_messages(messages) if messages else (), strict=True):
            sent.message = name or ""


def _opened(message: Any) -> Letter | str:
    if message.has_error():
        return f"error {message.error.code} of its node: {words(message.error.reason, 300)}"
    try:
        return Letter.read(message)
    except UpdateRefused as error:
        return error.message


_post: ContextVar[Post | None] = ContextVar("post", default=None)


@contextmanager
def connected(post: Post) -> Iterator[None]:
    """Runs that begin inside the block, with the backend ``flower``, reach their nodes this way."""
    token = _post.set(post)
    try:
        yield
    finally:
        _post.reset(token)


def current() -> Post:
    """The way to the nodes of the block that this is called from."""
    found = _post.get()
    if found is None:
        raise InvalidOption(
            "the backend 'flower' works with the nodes of a deployment",
            "poise deploy run exp.toml --to DIR, or poise deploy resume|unlearn RUN --to DIR",
        )
    return found
