"""The life of a federation: add, revoke and rotate nodes, and renew certificates.

A change is recorded in the folder first. If the server is up, it takes effect at once;
otherwise when the server starts.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from poise.apps.deploy.certificates import make_node_key
from poise.apps.deploy.control import running
from poise.apps.deploy.folder import (
    Deployment,
    free_ports,
    open_deployment,
    sign,
    write_deployment,
    write_node,
)
from poise.apps.deploy.programs import register
from poise.core.errors import require

NEVER = 0  # the node id of a client that was revoked before it was registered
# the data of a new node, until its operator names them
PLACEHOLDER = {"file": "data.csv", "label": "label", "classes": 2}


def add_node(path: str | Path) -> tuple[Deployment, int]:
    """Create and register one more node; returns the deployment and the new client."""
    deployment = open_deployment(path)
    deployment.require_guard()
    client = deployment.nodes
    write_node(deployment, client, port=free_ports(1)[0], data=PLACEHOLDER)
    deployment = replace(deployment, nodes=client + 1)
    write_deployment(deployment)
    _apply(deployment)
    return deployment, client


def revoke(path: str | Path, client: int) -> bool:
    """Unregister the key of a client's node for good; whether it had been valid."""
    deployment = _with_client(path, client)
    changes = deployment.changes()
    if client in changes["revoked"]:
        _apply(deployment)
        return False
    changes["revoked"].append(client)
    # the number stays in nodes.json: later requests count the clients before it
    changes["retired"] += _node_id(deployment, client)
    deployment.write_changes(changes)
    deployment.write_registered({client: NEVER, **deployment.registered()})
    _apply(deployment)
    return True


def rotate(path: str | Path, client: int) -> Path:
    """Give a client's node a new key; the old one is unregistered.

    A revoked node is admitted again. Returns the folder of the new key.
    """
    deployment = _with_client(path, client)
    folder = deployment.node(client)
    folder.mkdir(mode=0o700, exist_ok=True)
    changes = deployment.changes()
    if client in changes["revoked"]:
        changes["revoked"].remove(client)
    changes["retired"] += _node_id(deployment, client)
    make_node_key(folder)
    deployment.write_changes(changes)
    node_ids = deployment.registered()
    node_ids.pop(client, None)
    deployment.write_registered(node_ids)
    _apply(deployment)
    return folder


def renew(path: str | Path, passphrase: bytes | None) -> Deployment:
    """Write a new certificate of the server, and sign the app again.

    Nodes need nothing new: they trust the authority and the signing key of ``init``.
    """
    deployment = open_deployment(path)
    deployment.require_guard()
    sign(deployment, passphrase)
    return deployment


def _with_client(path: str | Path, client: int) -> Deployment:
    deployment = open_deployment(path)
    deployment.require_guard()
    require(
        0 <= client < deployment.nodes,
        f"{deployment.path} has no client {client}",
        f"clients are 0 to {deployment.nodes - 1}",
    )
    return deployment


def _node_id(deployment: Deployment, client: int) -> list[int]:
    """The node id that a client has; none before its first registration."""
    node_ids = deployment.registered()
    if client not in node_ids:
        return []
    return [node_ids[client]]


def _apply(deployment: Deployment) -> None:
    if running(deployment):
        register(deployment)
