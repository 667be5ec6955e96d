"""Letters to nodes and their replies, through Flower; what a lost node did not answer is asked again."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

from poise.backends.letters import Letter
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
        members: the number in the deployment of each client, where some have left (`among`); None: client i is node i.
    """

    grid: Any
    nodes: Mapping[int, int]
    run: str = ""
    task: Mapping[str, Any] = field(default_factory=dict)
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
        """The reply of each client, or in words why there is none; a client gets ``patience`` seconds in all.

        A piece of work depends on its address only, so that asking for it a second time changes nothing.
        """
        todo, waiting, answers = set(letters), dict[str, int](), dict[int, Letter | str]()
        crashes = dict.fromkeys(letters, 0)
        until = time.monotonic() + patience
        while len(answers) < len(letters):
            waiting |= self._send(todo, letters, max(until - time.monotonic(), 1.0))
            todo -= set(waiting.values())
            for message in self.grid.pull_messages(list(waiting)) if waiting else ():
                client = waiting.pop(message.metadata.reply_to_message_id, None)
                if client is None:
                    continue
                code = message.error.code if message.has_error() else None
                crashes[client] += code == CRASHED
                if code in AWAY or (code == CRASHED and crashes[client] <= CRASHES):
                    todo.add(client)
                else:
                    answers[client] = _opened(message)
            if time.monotonic() > until:
                late = {c: f"nothing within {patience:g} seconds" for c in letters if c not in answers}
                return {**answers, **late}
            time.sleep(PAUSE)
        return answers

    def _send(self, clients: set[int], letters: Mapping[int, Letter], ttl: float) -> dict[str, int]:
        """Push the letters of those who are there; the ids of the messages."""
        if not clients:
            return {}
        present = set(self.grid.get_node_ids())
        there = sorted(c for c in clients if self.nodes[c] in present)
        messages = [
            self.grid.create_message(
                letters[c].content(), f"query.{letters[c].facts['kind']}", self.nodes[c], self.run, ttl
            )
            for c in there
        ]
        pushed = list(self.grid.push_messages(messages)) if messages else []
        return {name: client for name, client in zip(pushed, there, strict=True) if name}


def _opened(message: Any) -> Letter | str:
    if message.has_error():
        return f"error {message.error.code} of its node: {str(message.error.reason)[:300]}"
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
