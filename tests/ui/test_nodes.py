"""The pages and the API of deployments: nodes, events, refused replies, the log."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from poise.apps.deploy.events import Event, EventLog
from poise.apps.deploy.folder import Deployment, make_deployment
from poise.apps.ui.app import create_app
from poise.apps.ui.guard import Keys
from poise.ledger.store import Ledger
from ui.support import HOME, client, copied

pytest.importorskip("cryptography", reason="the extra [flower] is not installed")

DATA = {"source": "digits", "partition": "iid", "clients": 3, "seed": 0}


@pytest.fixture
def hospital(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    """A deployment whose files say that client 2 has fallen silent; nothing runs."""
    return crafted(tmp_path / "hospital", monkeypatch)


def crafted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    made = make_deployment(folder, 3, DATA)
    made.jobs.mkdir(exist_ok=True)
    made.logs.mkdir(exist_ok=True)
    now = time.time()
    # the supervisor is this test
    monkeypatch.setattr("poise.apps.deploy.overview.running", lambda deployment: True)
    processes = {
        "superlink": {"pid": 1, "starts": 2},
        "node-0": {"pid": 2, "starts": 1},
    }
    state = {"status": "up", "supervisor": os.getpid(), "processes": processes}
    (made.path / "state.json").write_text(json.dumps(state))
    node = {
        "connected": True,
        "last_seen": now - 5,
        "connected_at": 1,
        "connections": 1,
    }
    silent = {**node, "connected": False, "last_seen": now - 75, "connections": 3}
    seen = {"at": now, "nodes": {"0": node, "1": node, "2": silent}}
    (made.server / "nodes-seen.json").write_text(json.dumps(seen))
    log = EventLog(made.server)
    log.write(Event(now - 300, "client 2: its node connected", client=2))
    silence = "client 2: its node has been silent for 41 s"
    log.write(Event(now - 34, silence, client=2, trouble=True))
    (made.logs / "supervisor.log").write_text("one\n" * 20_000 + "the last line\n")
    order = {"out": str(folder.parent / "runs" / "small")}
    (made.jobs / "job.json").write_text(json.dumps(order))
    lines = [
        {"pid": 1, "at": now - 200},
        {"round": 0, "at": now - 100, "releases": {"0": "0.1.0", "2": "0.0.9"}},
        {"round": 1, "at": now - 50, "refused_nodes": [[1, "norm 9 <above> 3"]]},
    ]
    (made.jobs / "job.log").write_text("".join(f"{json.dumps(x)}\n" for x in lines))
    return made


def test_the_api_says_who_is_connected(runs: Path, hospital: Deployment) -> None:
    console = client(runs, deployments=[hospital.path])
    (whole,) = console.get("/api/deployments").json()
    assert whole == console.get("/api/deployment/0").json()
    assert (whole["status"], whole["processes"]) == ("up", {"superlink": 2})
    assert whole["warnings"] == ["Client 2 is not connected."]
    states = [(node["client"], node["state"], node["here"]) for node in whole["nodes"]]
    assert states == [
        (0, "connected", True),
        (1, "connected", False),
        (2, "silent", False),
    ]
    last = whole["nodes"][2]
    assert (last["ago"], last["restarts"], last["release"]) == ("1 min ago", 2, "0.0.9")
    (refused,) = whole["nodes"][1]["refused"]
    assert (refused["aggregation"], refused["reason"]) == (2, "norm 9 <above> 3")
    assert [event["text"] for event in whole["events"]] == [
        "client 2: its node has been silent for 41 s",
        "client 2: its node connected",
    ]
    assert whole["certificate"] < whole["authority"]


def test_the_page_says_the_same(runs: Path, hospital: Deployment) -> None:
    console = client(runs, deployments=[hospital.path])
    page = console.get("/nodes").text
    assert "Client 2 is not connected." in page
    assert "client 2: its node has been silent for 41 s" in page
    assert "norm 9 &lt;above&gt; 3" in page
    assert "unknown before its first run" in page
    log = console.get("/supervisor-log/0").text
    assert "the last line" in log
    assert len(log) < 2**17


def test_a_run_shows_the_events_of_its_nodes(runs: Path, hospital: Deployment) -> None:
    console = client(runs, deployments=[hospital.path])
    folder = runs / "small" / "seed-0"
    now = time.time()
    ledger = Ledger.open(folder, writing=True)
    ledger.set("began", datetime.fromtimestamp(now - 60, UTC).isoformat())
    ledger.close()
    page = console.get("/run/small/seed-0").text
    assert 'href="/nodes"' in page
    assert "client 2: its node has been silent for 41 s" in page
    assert "its node connected" not in page, "that was before the run"
    for file in folder.iterdir():
        os.utime(file, (now - 40, now - 40))
    page = console.get("/run/small/seed-0").text
    assert "is silent" not in page, "the run ended before"
    copied(folder, runs / "other" / "seed-0")
    assert "Nodes of the deployment" not in console.get("/run/other/seed-0").text


def test_a_console_without_deployments_says_how(runs: Path) -> None:
    console = client(runs)
    assert console.get("/api/deployments").json() == []
    assert "--deployment DIR" in console.get("/nodes").text
    assert console.get("/api/deployment/0").status_code == 404
    assert console.get("/supervisor-log/0").status_code == 404


def test_a_folder_that_is_no_deployment_is_named(runs: Path, tmp_path: Path) -> None:
    console = client(runs, deployments=[tmp_path / "nowhere"])
    answer = console.get("/api/deployments")
    assert (answer.status_code, "nowhere" in answer.json()["error"]) == (409, True)


def test_nodes_need_the_token(runs: Path, hospital: Deployment) -> None:
    from fastapi.testclient import TestClient

    app = create_app(runs, Keys(), deployments=[hospital.path])
    stranger = TestClient(app, base_url=HOME)
    for address in ("/api/deployments", "/api/deployment/0", "/api/supervisor-log/0"):
        assert stranger.get(address).status_code == 401
    for address in ("/nodes", "/supervisor-log/0"):
        assert "/unlock" in str(stranger.get(address, follow_redirects=False).headers)
