"""Erase the traces of unlearned clients from a deployment: server database, node state."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from poise.apps.deploy.control import DeploymentFailed
from poise.apps.deploy.folder import Deployment, open_deployment

MESSAGES = ("message_ins", "message_res", "objects", "object_children", "run_objects")
"""Flower's tables with the messages between server and nodes, and their content."""


def erase_deployed(to: str | Path, clients: Sequence[int]) -> list[str]:
    """Erase what a deployment keeps of clients; return what was done, in sentences."""
    deployment = open_deployment(to)
    done = [erase_messages(deployment)]
    done += [erase_node_state(deployment.node(client), client) for client in clients]
    return done


def erase_messages(deployment: Deployment) -> str:
    """Delete all messages from the database of the SuperLink, and its free pages."""
    file = deployment.server / "state.db"
    if not file.exists():
        return "the SuperLink has no database"
    try:
        with closing(sqlite3.connect(file, timeout=60, isolation_level=None)) as base:
            _require_idle(base, file)
            base.execute("PRAGMA secure_delete = ON")
            base.execute("BEGIN IMMEDIATE")
            for table in MESSAGES:
                if _exists(base, table):
                    base.execute(f"DELETE FROM {table}")
            base.execute("COMMIT")
            base.execute("VACUUM")
            busy, *_ = base.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.Error as error:
        raise DeploymentFailed(
            f"cannot erase messages from {file}: {error}",
            "wait until no run uses the deployment, then repeat the request with --erase",
        ) from error
    if busy:
        raise DeploymentFailed(
            f"{file} is in use, so its log could not be emptied",
            "repeat the request with --erase",
        )
    return "the messages in the SuperLink's database were deleted, and it was vacuumed"


def _exists(base: sqlite3.Connection, table: str) -> bool:
    query = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?"
    return bool(base.execute(query, (table,)).fetchone()[0])


def _require_idle(base: sqlite3.Connection, file: Path) -> None:
    """Raise while messages wait for a node or for the server."""
    waiting = 0
    for table in ("message_ins", "message_res"):
        if _exists(base, table):
            query = f"SELECT count(*) FROM {table} WHERE delivered_at = ''"
            waiting += base.execute(query).fetchone()[0]
    if waiting:
        raise DeploymentFailed(
            f"{file}: {waiting} messages of another run are on their way",
            "wait until that run ends, then repeat the request with --erase",
        )


def erase_node_state(folder: Path, client: int) -> str:
    """Delete the states that a node keeps, where its folder is on this machine."""
    state = folder / "state"
    if not folder.is_dir():
        return (
            f"the node of client {client} is on another machine: ask its operator to "
            "delete the folder state of the node"
        )
    if state.is_dir():
        shutil.rmtree(state)
    return f"the node of client {client} keeps no state"


__all__ = ["erase_deployed", "erase_messages", "erase_node_state"]
