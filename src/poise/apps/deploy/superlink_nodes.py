"""The nodes as the SuperLink knows them, read from its database on the server's disk.

Asking the SuperLink itself starts a process of Flower, which takes seconds. The database
says the same in a millisecond, and reading it changes nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

PATIENCE = 2
"""Flower considers a node offline this many heartbeat intervals after the last one."""

LATE = 4 / 3
"""A node is silent this many heartbeat intervals after the last one.

Flower 1.41 sends a heartbeat every 17 to 23 s and names an interval of 30 s. A node is
therefore silent after 40 s, before Flower gives it up after 60 s.
"""

QUERY = """
SELECT node_id, status, last_activated_at, online_until, heartbeat_interval FROM node
"""


@dataclass(frozen=True)
class NodeSight:
    """A registered node at its last heartbeat; times are in seconds since 1970.

    Args:
        status: Flower's status: ``registered`` (never connected), ``online``,
            ``offline`` or ``unregistered``.
        last_seen: the last heartbeat; 0 if there was none.
        connected_at: when the node connected last; 0 if never.
        interval: seconds between two heartbeats.
    """

    status: str
    last_seen: float
    connected_at: float
    interval: float

    def connected(self, now: float) -> bool:
        """Whether the node is online and not silent at a time."""
        return self.status == "online" and now - self.last_seen <= LATE * self.interval


def node_sights(
    database: Path, node_ids: Mapping[int, int]
) -> dict[int, NodeSight] | None:
    """The nodes of clients, by client; None if the database cannot be read now.

    Args:
        database: the SuperLink's file ``state.db``.
        node_ids: Flower's node id of each client (`Deployment.registered`).
    """
    try:
        with closing(
            sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)
        ) as connection:
            rows = connection.execute(QUERY).fetchall()
    except sqlite3.Error:  # not made yet, or locked for longer than five seconds
        return None
    sights = {}
    clients = {_signed(node_id): client for client, node_id in node_ids.items()}
    for node_id, status, activated, until, interval in rows:
        if node_id in clients:
            sights[clients[node_id]] = _sight(status, activated, until, interval)
    return sights


def _sight(
    status: str, activated: str | None, until: float | None, interval: float
) -> NodeSight:
    """The sight of a row of the database."""
    connected_at = 0.0
    if activated:
        connected_at = datetime.fromisoformat(activated).timestamp()
    last_seen = connected_at
    if until:
        last_seen = max(until - PATIENCE * interval, connected_at)
    return NodeSight(status, last_seen, connected_at, interval)


def _signed(node_id: int) -> int:
    """Flower's unsigned node id as its database stores it."""
    if node_id >= 2**63:
        return node_id - 2**64
    return node_id
