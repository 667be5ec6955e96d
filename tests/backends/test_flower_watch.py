"""A killed node becomes an event on the console's page within a minute; a server and two nodes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from poise import __version__
from poise.apps.deploy import control, jobs
from poise.apps.deploy.folder import Deployment, make_deployment
from poise.config.experiment import parse
from poise.training import federation_in
from ui.support import client

pytest.importorskip("flwr", reason="the extra [flower] is not installed")
pytestmark = [
    pytest.mark.long,
    pytest.mark.xdist_group("flower"),
    pytest.mark.timeout(900),
]

TEXT = """
[data]
source = "digits"
clients = 2
seed = 0
[task]
model = "logistic"
[solver]
name = "sgd"
lr = 0.1
steps = 5
[run]
rounds = 1
"""


@pytest.fixture(scope="module")
def watched(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Deployment, subprocess.Popen[bytes]]]:
    """A server that starts no nodes, and two nodes that run by themselves."""
    spec = federation_in(parse(TEXT), 0).spec
    made = make_deployment(tmp_path_factory.mktemp("watch") / "two", 2, spec)
    control.up(made.path, nodes=False, seconds=300)
    nodes = [
        subprocess.Popen(
            [sys.executable, "-m", "poise", "deploy", "node", str(made.node(k))],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        for k in range(2)
    ]
    yield made, nodes[1]
    for process in nodes:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(30)
    control.down(made.path)


def eventually(true: Callable[[], bool], seconds: float) -> float:
    """The seconds until something is true; fails when it takes too long."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < seconds
        time.sleep(0.5)
    return time.monotonic() - began


def test_a_killed_node_is_an_event_within_a_minute(
    watched: tuple[Deployment, subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    made, node = watched
    console = client(tmp_path, deployments=[made.path])

    def states() -> list[str]:
        (found,) = console.get("/api/deployments").json()
        return [one["state"] for one in found["nodes"]]

    eventually(lambda: states() == ["connected", "connected"], 240)
    (run,) = jobs.run_deployed(parse(TEXT), made.path, tmp_path / "out")
    assert run.rounds == 1
    (found,) = console.get("/api/deployments").json()
    assert [one["release"] for one in found["nodes"]] == [__version__] * 2
    assert [one["here"] for one in found["nodes"]] == [False] * 2
    page = console.get("/run/out/seed-0").text
    assert "Nodes of the deployment" in page
    # the node and its supervisor, as if the machine had lost its power
    for pid in [node.pid, *children(node.pid)]:
        os.killpg(pid, signal.SIGKILL)
    node.wait()
    silent = "client 1: its node has been silent for "

    def told() -> bool:
        (found,) = console.get("/api/deployments").json()
        return any(event["text"].startswith(silent) for event in found["events"])

    seconds = eventually(told, 60)
    print(f"the event appeared {seconds:.0f} s after the kill")
    assert states() == ["connected", "silent"]
    page = console.get("/nodes").text
    assert silent in page
    assert "Client 1 is not connected." in page
    assert silent in console.get("/supervisor-log/0").text


def children(pid: int) -> list[int]:
    """The processes that a process started."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found]
