"""Start, look at and end a trial deployment on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from poise.apps.deploy.folder import MARK, Deployment, open_deployment, read_toml
from poise.apps.deploy.programs import flwr, listening, program
from poise.apps.deploy.supervisor import GRACE
from poise.core.errors import InvalidOption, PoiseError


class DeploymentFailed(PoiseError):
    """A deployment could not be started, reached or ended."""


def up(path: str | Path, nodes: bool = True, seconds: float = 180.0) -> Deployment:
    """Start the supervisor, and wait until everything listens; without ``nodes``, the server
    alone.
    """
    deployment, command = _ready(path, nodes)
    with (deployment.logs / "supervisor.log").open("ab") as log:
        process = subprocess.Popen(
            command,
            env=deployment.environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    until = time.monotonic() + seconds
    ports = [
        read_toml(deployment.node(c) / "node.toml")["port"]
        for c in range(deployment.nodes)
        if nodes
    ]
    while deployment.state().get("status") != "up" or not all(map(listening, ports)):
        if process.poll() is not None or time.monotonic() > until:
            why = deployment.state().get("error") or "it did not start in time"
            down(path)
            raise DeploymentFailed(f"{deployment.path} is not up: {why}", f"see {deployment.logs}")
        time.sleep(0.3)
    return deployment


def serve(path: str | Path) -> NoReturn:
    """Become the supervisor of the server alone: the process that a unit or a container keeps."""
    deployment, command = _ready(path, nodes=False)
    os.execve(
        command[0], command, deployment.environment
    )  # its environment is how `belonging` knows it


def _ready(path: str | Path, nodes: bool) -> tuple[Deployment, list[str]]:
    """A deployment that is not up, and the command of its supervisor."""
    deployment = open_deployment(path)
    program("flower-superlink")
    if running(deployment):
        raise InvalidOption(f"{deployment.path} is up already", f"poise deploy status {path}")
    (deployment.path / "state.json").unlink(missing_ok=True)
    alone = [] if nodes else ["--server-only"]
    return deployment, [
        sys.executable,
        "-m",
        "poise.apps.deploy.supervisor",
        str(deployment.path),
        *alone,
    ]


def status(path: str | Path) -> dict[str, Any]:
    """The supervisor, its processes, and which nodes the server sees."""
    deployment = open_deployment(path)
    state, alive = deployment.state(), running(deployment)
    found: dict[str, Any] = {
        "path": str(deployment.path),
        "status": state.get("status", "down") if alive else "down",
        "supervisor": state.get("supervisor") if alive else None,
        "processes": state.get("processes", {}) if alive else {},
        "nodes": {},
    }
    if alive and listening(deployment.port, deployment.host):
        seen = {
            int(n["node-id"]): n["status"]
            for n in flwr(deployment, "supernode", "list", "poise")["nodes"]
        }
        found["nodes"] = {
            c: seen.get(node, "unknown") for c, node in sorted(deployment.registered().items())
        }
    return found


def down(path: str | Path) -> list[int]:
    """End the supervisor, and whatever else belongs to this folder; the processes that ended."""
    deployment = open_deployment(path)
    ended = belonging(deployment)
    supervisor = deployment.state().get("supervisor")
    if supervisor in ended:
        os.kill(supervisor, signal.SIGTERM)
        _wait(lambda: supervisor not in belonging(deployment), GRACE + 6)
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in belonging(deployment):
            _signal(pid, number)
        _wait(lambda: not belonging(deployment), 4.0)
    return ended


def running(deployment: Deployment) -> bool:
    """Whether a supervisor of this folder is alive."""
    return deployment.state().get("supervisor") in belonging(deployment)


def alive(pid: int) -> bool:
    """Whether a process runs; one that ended and waits to be noticed does not."""
    try:
        state = (
            Path(f"/proc/{pid}/stat")
            .read_text(encoding="utf-8", errors="replace")
            .rpartition(")")[2]
            .split()[0]
        )
    except OSError:
        return False
    return state not in ("Z", "X")


def belonging(deployment: Deployment) -> list[int]:
    """Processes that were started for this folder: each carries the folder's name in its
    environment.
    """
    mark = f"{MARK}={deployment.path}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in entry.read_bytes().split(b"\0") and int(entry.parent.name) != os.getpid():
                found.append(int(entry.parent.name))
        except OSError:  # another user's, or gone
            continue
    return sorted(found)


def _wait(over: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not over() and time.monotonic() < until:
        time.sleep(0.1)


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
