"""`overview`: a deployment for its operator, from files on the server's disk.

It starts no process and asks no node, so it costs milliseconds.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from poise.apps.deploy.certificates import expiry
from poise.apps.deploy.control import running
from poise.apps.deploy.events import Event, EventLog
from poise.apps.deploy.folder import Deployment, open_deployment
from poise.apps.deploy.node_reports import NodeReport, Refusal, read_reports
from poise.apps.deploy.node_watch import SeenNode, looked_at, seen_nodes

SOON = 30 * 86_400.0
"""Seconds before its end when a certificate is said to expire soon."""

LATE = 30.0
"""Seconds after which the last look of the supervisor is too old to be believed."""


@dataclass(frozen=True)
class NodeLine:
    """One node; times are in seconds since 1970.

    Args:
        client: number of its client.
        state: ``connected``, ``silent`` (heard before, not now), ``never connected``,
            ``revoked``, or ``unknown`` while nobody watches.
        last_seen: its last heartbeat; None if there was none.
        starts: how often its process was started here; None if it runs elsewhere.
        restarts: how often it was started again, as far as known.
        release: the version of poise that it registered with; empty if unknown.
        refused: its refused replies in the latest jobs, oldest first.
        certificate: end of the certificate of its local port; None if it is elsewhere.
    """

    client: int
    state: str
    last_seen: float | None
    starts: int | None
    restarts: int
    release: str
    certificate: float | None
    refused: tuple[Refusal, ...] = ()


@dataclass(frozen=True)
class Overview:
    """A deployment as its operator wants to see it.

    Args:
        path: its folder.
        status: of the supervisor: ``up``, ``starting``, ``failed``, ``down``.
        error: why it failed; else empty.
        looked: when the supervisor looked at the nodes last, in seconds since 1970.
        certificate: end of the server's certificate, in seconds since 1970.
        authority: end of the authority's certificate.
        processes: the server's own processes with their numbers of starts.
        nodes: the nodes in the order of their clients.
        events: oldest first.
        log: the supervisor's log.
    """

    path: Path
    status: str
    error: str
    looked: float
    certificate: float | None
    authority: float | None
    processes: dict[str, int]
    nodes: tuple[NodeLine, ...]
    events: tuple[Event, ...] = ()
    log: Path = field(default_factory=Path)

    def warnings(self, now: float) -> list[str]:
        """What an operator should do something about, in sentences."""
        words = []
        if self.status != "up":
            words.append(f"The deployment is {self.status}. {self.error}".strip())
        ends = {"the server": self.certificate, "the authority": self.authority}
        ends |= {f"client {node.client}": node.certificate for node in self.nodes}
        for owner, end in ends.items():
            if end is not None and end < now:
                words.append(f"The certificate of {owner} has expired.")
            elif end is not None and end < now + SOON:
                days = (end - now) / 86_400
                words.append(f"The certificate of {owner} expires in {days:.0f} days.")
        for node in self.nodes:
            if node.state == "silent":
                words.append(f"Client {node.client} is not connected.")
        return words


def overview(path: str | Path) -> Overview:
    """The state of a deployment's processes, nodes and certificates."""
    deployment = open_deployment(path)
    state = deployment.state()
    status = str(state.get("status", "down"))
    alive = running(deployment)
    if not alive and status in ("up", "starting"):
        status = "down"
    starts = {
        str(name): int(process["starts"])
        for name, process in state.get("processes", {}).items()
    }
    looked = looked_at(deployment)
    watched = alive and time.time() - looked < LATE
    return Overview(
        path=deployment.path,
        status=status,
        error=str(state.get("error", "")),
        looked=looked,
        certificate=expiry(deployment.server / "tls.pem"),
        authority=expiry(deployment.server / "ca.crt"),
        processes={k: n for k, n in starts.items() if not k.startswith("node-")},
        nodes=_nodes(deployment, starts, watched),
        events=tuple(EventLog(deployment.server).read()),
        log=deployment.logs / "supervisor.log",
    )


def _nodes(
    deployment: Deployment, starts: dict[str, int], watched: bool
) -> tuple[NodeLine, ...]:
    """The lines of all nodes."""
    seen = seen_nodes(deployment)
    reports = read_reports(deployment)
    revoked = deployment.changes()["revoked"]
    lines = []
    for client in range(deployment.nodes):
        node = seen.get(client, SeenNode())
        report = reports.get(client, NodeReport())
        started = starts.get(f"node-{client}")
        restarts = max(report.restarts, node.connections - 1, (started or 1) - 1)
        state = _state(node, watched)
        if client in revoked:
            state = "revoked"
        lines.append(
            NodeLine(
                client,
                state,
                last_seen=node.last_seen or None,
                starts=started,
                restarts=restarts,
                release=report.release,
                certificate=expiry(deployment.node(client) / "tls.pem"),
                refused=tuple(report.refused),
            )
        )
    return tuple(lines)


def _state(node: SeenNode, watched: bool) -> str:
    if not node.last_seen:
        return "never connected"
    if not watched:
        return "unknown"
    if node.connected:
        return "connected"
    return "silent"
