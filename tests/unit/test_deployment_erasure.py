"""Erasing clients from a deployment: messages in the server's database, states of nodes."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from poise.apps.deploy.control import DeploymentFailed
from poise.apps.deploy.erasure import erase_messages, erase_node_state
from poise.apps.deploy.folder import Deployment

UPDATE = bytes(range(200)) * 40


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    (tmp_path / "server").mkdir()
    return Deployment(tmp_path, nodes=2, port=1)


def database(deployment: Deployment, delivered: str) -> sqlite3.Connection:
    """A database with a message in the tables and deleted ones in free pages and log."""
    base = sqlite3.connect(deployment.server / "state.db", isolation_level=None)
    base.execute("PRAGMA journal_mode = WAL")
    base.execute("CREATE TABLE message_ins (content BLOB, delivered_at TEXT)")
    base.execute("CREATE TABLE objects (object_id TEXT, content BLOB)")
    base.execute("CREATE TABLE node (node_id INTEGER)")
    base.execute("INSERT INTO node VALUES (7)")
    for n in range(5):
        base.execute("INSERT INTO objects VALUES (?, ?)", (str(n), UPDATE))
    base.execute("DELETE FROM objects WHERE object_id < '4'")
    base.execute("INSERT INTO message_ins VALUES (?, ?)", (UPDATE, delivered))
    return base


def files_with(folder: Path, needle: bytes) -> list[str]:
    files = [f for f in folder.rglob("*") if f.is_file()]
    return sorted(f.name for f in files if needle in f.read_bytes())


def test_no_update_is_left_in_the_database_or_its_log(deployment: Deployment) -> None:
    base = database(deployment, delivered="2026-01-01")
    assert files_with(deployment.server, UPDATE[:200])
    assert "vacuumed" in erase_messages(deployment)
    assert files_with(deployment.server, UPDATE[:200]) == []
    assert base.execute("SELECT * FROM node").fetchall() == [(7,)]
    base.close()


def test_messages_on_their_way_are_left_alone(deployment: Deployment) -> None:
    base = database(deployment, delivered="")
    with pytest.raises(DeploymentFailed, match="on their way"):
        erase_messages(deployment)
    assert base.execute("SELECT count(*) FROM message_ins").fetchone() == (1,)
    base.close()


def test_a_node_on_this_machine_loses_its_states(tmp_path: Path) -> None:
    state = tmp_path / "node-1" / "state" / "run"
    state.mkdir(parents=True)
    (state / "3.safetensors").write_bytes(UPDATE)
    assert "keeps no state" in erase_node_state(tmp_path / "node-1", 1)
    assert not (tmp_path / "node-1" / "state").exists()
    assert "on another machine" in erase_node_state(tmp_path / "node-2", 2)
