"""Nodes that come, go and fall silent: noticed from Flower's own database, without nodes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from poise.apps.deploy.events import MOST_BYTES, Event, EventLog
from poise.apps.deploy.folder import Deployment, make_deployment
from poise.apps.deploy.node_reports import read_reports
from poise.apps.deploy.node_watch import NodeWatch, SeenNode, seen_nodes
from poise.apps.deploy.overview import overview
from poise.apps.deploy.superlink_nodes import NodeSight, node_sights

pytest.importorskip("flwr", reason="the extra [flower] is not installed")

INTERVAL = 30.0
DATA = {"source": "digits", "partition": "iid", "clients": 3, "seed": 0}


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    made = make_deployment(tmp_path / "three", 3, DATA)
    made.jobs.mkdir(exist_ok=True)
    made.logs.mkdir(exist_ok=True)
    return made


@pytest.fixture
def flower(deployment: Deployment) -> Any:
    """Flower's own state of a SuperLink, in the deployment's database."""
    from flwr.server.superlink.linkstate.sql_linkstate import SqlLinkState

    state = SqlLinkState(
        str(deployment.server / "state.db"), MagicMock(), object_store=MagicMock()
    )
    state.initialize()
    return state


def registered(deployment: Deployment, flower: Any) -> dict[int, int]:
    nodes = {
        k: flower.create_node("", "", bytes([k]), heartbeat_interval=INTERVAL)
        for k in range(3)
    }
    deployment.write_registered(nodes)
    return nodes


def test_the_database_says_when_a_node_was_seen(
    deployment: Deployment, flower: Any
) -> None:
    nodes = registered(deployment, flower)
    before = time.time()
    flower.activate_node(nodes[1], INTERVAL)
    flower.acknowledge_node_heartbeat(nodes[1], INTERVAL)
    sights = node_sights(deployment.server / "state.db", nodes)
    assert sights is not None
    assert before <= sights[1].last_seen <= time.time()
    assert sights[1].connected(time.time())
    assert sights[1].connected(sights[1].last_seen + 39)
    assert not sights[1].connected(sights[1].last_seen + 41)
    assert (sights[0].status, sights[0].last_seen) == ("registered", 0.0)
    assert not sights[0].connected(time.time())
    flower.deactivate_node(nodes[1])
    after = node_sights(deployment.server / "state.db", nodes)
    assert after is not None
    assert not after[1].connected(time.time())


def test_no_database_is_no_answer(tmp_path: Path) -> None:
    assert node_sights(tmp_path / "state.db", {0: 1}) is None
    (tmp_path / "state.db").write_bytes(b"no database" * 100)
    assert node_sights(tmp_path / "state.db", {0: 1}) is None


def test_what_happens_to_nodes_becomes_events(
    deployment: Deployment, flower: Any
) -> None:
    nodes = registered(deployment, flower)
    watch = NodeWatch(deployment, EventLog(deployment.server))

    def look() -> list[str]:
        known = len(watch.log.read())
        watch._due = 0.0
        watch.look()
        return [event.text for event in watch.log.read()[known:]]

    assert look() == []
    flower.activate_node(nodes[0], INTERVAL)
    flower.activate_node(nodes[2], INTERVAL)
    assert look() == [
        "client 0: its node connected",
        "client 2: its node connected",
    ]
    assert look() == []
    sights = node_sights(deployment.server / "state.db", nodes)
    assert sights is not None
    later = sights[2].last_seen + 41
    assert watch.compare(sights, later - 2) == []
    silent = watch.compare(sights, later)
    assert [(event.client, event.trouble) for event in silent] == [(0, True), (2, True)]
    assert silent[1].text == "client 2: its node has been silent for 41 s"
    assert look() == [  # the clock of the test was ahead
        "client 0: its node is heard again",
        "client 2: its node is heard again",
    ]
    flower.deactivate_node(nodes[0])
    assert look() == ["client 0: its node disconnected"]
    flower.activate_node(nodes[0], INTERVAL)
    assert look() == ["client 0: its node connected again"]
    assert [event.trouble for event in watch.log.read()] == [
        False,
        False,
        False,
        False,
        True,
        True,
    ]
    kept = seen_nodes(deployment)
    assert (kept[0].connections, kept[2].connections) == (2, 1)
    assert (kept[0].connected, kept[2].connected) == (True, True)
    assert (deployment.server / "events.jsonl").stat().st_mode & 0o077 == 0


def test_a_restarted_supervisor_goes_on_counting(
    deployment: Deployment, flower: Any
) -> None:
    nodes = registered(deployment, flower)
    flower.activate_node(nodes[0], INTERVAL)
    NodeWatch(deployment, EventLog(deployment.server)).look()
    again = NodeWatch(deployment, EventLog(deployment.server))
    again.look()
    assert again.nodes[0].connections == 1
    assert [event.text for event in again.log.read()] == [
        "client 0: its node connected",
        "client 0: its node is heard again",
    ]


def test_watching_does_not_end_the_deployment(
    deployment: Deployment, flower: Any
) -> None:
    registered(deployment, flower)
    (deployment.server / "nodes.json").write_text('{"0": ')  # being written
    NodeWatch(deployment, EventLog(deployment.server)).look()


def test_a_sight_takes_the_latest_of_both_times() -> None:
    node = SeenNode(True, last_seen=100.0, connected_at=50.0, connections=1)
    left = node.after(NodeSight("offline", 60.0, 50.0, interval=INTERVAL), 110.0)
    assert left == SeenNode(False, last_seen=100.0, connected_at=50.0, connections=1)


def test_the_file_of_events_stays_small(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    (tmp_path / "events.jsonl").write_text("x" * (MOST_BYTES + 1))
    log.write(Event(1.0, "first"))
    log.write(Event(2.0, "second", client=3))
    with (tmp_path / "events.jsonl").open("a") as stream:
        stream.write('{"at": 3.0, "te')  # a line that is being written
    assert [event.text for event in log.read()] == ["first", "second"]
    assert [event.text for event in log.read(since=1.0)] == ["second"]
    assert (tmp_path / "events.old.jsonl").stat().st_size > MOST_BYTES


def test_reports_of_nodes_come_from_the_latest_jobs(deployment: Deployment) -> None:
    (deployment.jobs / "1.log").write_text(
        '{"pid": 3}\n'
        '{"round": 0, "at": 5.0, "boots": {"0": "a", "2": "b"}, "releases": {"0": "0.1"}}\n'
        '{"round": 1, "at": 6.0, "boots": {"0": "a", "2": "c"}, "refused": [[1, "x"]], '
        '"refused_nodes": [[2, "norm 9"]]}\n'
        "half a li"
    )
    (deployment.jobs / "2.log").write_text('{"round": 0, "releases": {"0": "0.2"}}\n')
    reports = read_reports(deployment)
    assert (reports[0].release, reports[0].restarts) == ("0.2", 0)
    assert (reports[2].release, reports[2].restarts) == ("", 1)
    (refusal,) = reports[2].refused
    assert (refusal.job, refusal.aggregation, refusal.reason) == ("1", 2, "norm 9")
    assert 1 not in reports, "refused counts clients of the run, not of the deployment"


def test_the_overview_of_a_deployment_that_is_down(deployment: Deployment) -> None:
    seen = overview(deployment.path)
    assert (seen.status, [node.state for node in seen.nodes]) == (
        "down",
        ["never connected"] * 3,
    )
    now = time.time()
    assert seen.certificate is not None
    assert 364 * 86_400 < seen.certificate - now < 366 * 86_400
    assert seen.authority is not None
    assert 3649 * 86_400 < seen.authority - now < 3651 * 86_400
    assert seen.warnings(now) == ["The deployment is down."]
    assert "The certificate of the server expires in 20 days." in seen.warnings(
        seen.certificate - 20 * 86_400
    )
    assert "The certificate of the server has expired." in seen.warnings(
        seen.certificate + 1
    )
