"""`NodeWatch`: notices nodes that come, go, restart or fall silent.

The supervisor looks every two seconds. What it saw last is in ``server/nodes-seen.json``,
which is replaced as a whole, so readers see a complete file.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace

from poise.apps.deploy.events import Event, EventLog
from poise.apps.deploy.folder import Deployment
from poise.apps.deploy.superlink_nodes import NodeSight, node_sights

SEEN = "nodes-seen.json"
PAUSE = 2.0
"""Seconds between two looks."""


@dataclass(frozen=True)
class SeenNode:
    """What the watch knows of a node; times are in seconds since 1970.

    Args:
        connected: whether the node was connected at the last look.
        last_seen: its last heartbeat; 0 if there was none.
        connected_at: when it connected last; 0 if never.
        connections: how often it has connected since the watch began.
    """

    connected: bool = False
    last_seen: float = 0.0
    connected_at: float = 0.0
    connections: int = 0

    def after(self, sight: NodeSight, now: float) -> SeenNode:
        """The state after another look."""
        again = sight.connected_at > self.connected_at
        return SeenNode(
            sight.connected(now),
            last_seen=max(self.last_seen, sight.last_seen),
            connected_at=max(self.connected_at, sight.connected_at),
            connections=self.connections + again,
        )


@dataclass
class NodeWatch:
    """The nodes of a deployment, looked at again and again."""

    deployment: Deployment
    log: EventLog
    nodes: dict[int, SeenNode] = field(default_factory=dict)
    _due: float = 0.0

    def __post_init__(self) -> None:
        known = seen_nodes(self.deployment)
        # whether nodes are connected is to be seen anew; a restarted server is no event
        self.nodes = {c: replace(node, connected=False) for c, node in known.items()}

    def look(self) -> None:
        """Look at the nodes if it is time; record what changed.

        A look that fails is left out: watching must not end the deployment.
        """
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + PAUSE
        with suppress(OSError, ValueError):  # a full disk, a file that is being written
            self._look(time.time())

    def _look(self, now: float) -> None:
        sights = node_sights(
            self.deployment.server / "state.db", self.deployment.registered()
        )
        if sights is None:
            return
        for event in self.compare(sights, now):
            self.log.write(event)
        self._write(now)

    def compare(self, sights: Mapping[int, NodeSight], now: float) -> list[Event]:
        """Take over what the nodes are like now; returns what changed."""
        events = []
        for client, sight in sorted(sights.items()):
            before = self.nodes.get(client, SeenNode())
            after = before.after(sight, now)
            self.nodes[client] = after
            change = _change(before, after, sight, now)
            if change:
                again = after.connections > max(before.connections, 1)
                trouble = again or not after.connected
                text = f"client {client}: {change}"
                events.append(Event(now, text, client=client, trouble=trouble))
        return events

    def _write(self, now: float) -> None:
        nodes = {str(client): asdict(node) for client, node in self.nodes.items()}
        file = self.deployment.server / SEEN
        draft = file.with_suffix(".new")
        draft.write_text(json.dumps({"at": now, "nodes": nodes}), encoding="utf-8")
        draft.replace(file)


def seen_nodes(deployment: Deployment) -> dict[int, SeenNode]:
    """What the watch wrote last, by client; empty before its first look."""
    with suppress(FileNotFoundError, ValueError, TypeError, KeyError):
        text = (deployment.server / SEEN).read_text(encoding="utf-8")
        nodes = json.loads(text)["nodes"]
        return {int(client): SeenNode(**node) for client, node in nodes.items()}
    return {}


def looked_at(deployment: Deployment) -> float:
    """When the watch looked last, in seconds since 1970; 0 if never."""
    with suppress(FileNotFoundError, ValueError, TypeError, KeyError):
        text = (deployment.server / SEEN).read_text(encoding="utf-8")
        return float(json.loads(text)["at"])
    return 0.0


def _change(before: SeenNode, after: SeenNode, sight: NodeSight, now: float) -> str:
    """What happened to a node between two looks; empty if nothing did."""
    if after.connected:
        if after.connections > before.connections:
            if after.connections == 1:
                return "its node connected"
            return "its node connected again"
        if not before.connected:
            return "its node is heard again"
        return ""
    if not before.connected:
        return ""
    if sight.status == "unregistered":
        return "its node was unregistered"
    if sight.status == "online":
        return f"its node has been silent for {now - after.last_seen:.0f} s"
    return "its node disconnected"
