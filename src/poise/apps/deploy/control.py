"""Start, inspect and stop a deployment on this machine."""

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
    """A deployment could not be started, reached or stopped."""


def up(path: str | Path, nodes: bool = True, seconds: float = 180.0) -> Deployment:
    """Start the supervisor and wait until all processes listen.

    Without ``nodes``, only the server starts.
    """
    deployment, command = _prepare(path, nodes)
    with (deployment.logs / "supervisor.log").open("ab") as log:
        process = subprocess.Popen(
            command,
            env=deployment.environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    deadline = time.monotonic() + seconds
    ports = []
    if nodes:
        for client in deployment.admitted():
            ports.append(read_toml(deployment.node(client) / "node.toml")["port"])
    while deployment.state().get("status") != "up" or not all(map(listening, ports)):
        if process.poll() is not None or time.monotonic() > deadline:
            reason = deployment.state().get("error") or "it did not start in time"
            down(path)
            raise DeploymentFailed(
                f"{deployment.path} is not up: {reason}", f"see {deployment.logs}"
            )
        time.sleep(0.3)
    return deployment


def serve(path: str | Path) -> NoReturn:
    """Replace this process by the server's supervisor, for systemd and containers."""
    deployment, command = _prepare(path, nodes=False)
    # `belonging` reads the environment
    os.execve(command[0], command, deployment.environment)


def _prepare(path: str | Path, nodes: bool) -> tuple[Deployment, list[str]]:
    """The deployment, checked not to be up, and the command of its supervisor."""
    deployment = open_deployment(path)
    program("flower-superlink")
    deployment.require_guard()
    if running(deployment):
        raise InvalidOption(
            f"{deployment.path} is already up", f"poise deploy status {path}"
        )
    (deployment.path / "state.json").unlink(missing_ok=True)
    command = [
        sys.executable,
        "-m",
        "poise.apps.deploy.supervisor",
        str(deployment.path),
    ]
    if not nodes:
        command.append("--server-only")
    return deployment, command


def status(path: str | Path) -> dict[str, Any]:
    """The supervisor, its processes, and each node's status as the server sees it."""
    deployment = open_deployment(path)
    state = deployment.state()
    if not running(deployment):
        state = {}
    nodes: dict[int, str] = {}
    if state and listening(deployment.port, deployment.host):
        listed = flwr(deployment, "supernode", "list", "poise")["nodes"]
        statuses = {int(node["node-id"]): node["status"] for node in listed}
        for client, node_id in sorted(deployment.registered().items()):
            nodes[client] = statuses.get(node_id, "unknown")
        nodes |= dict.fromkeys(deployment.changes()["revoked"], "revoked")
    return {
        "path": str(deployment.path),
        "status": state.get("status", "down"),
        "supervisor": state.get("supervisor"),
        "processes": state.get("processes", {}),
        "nodes": nodes,
    }


def down(path: str | Path) -> list[int]:
    """Stop the supervisor and all other processes of this folder; returns their ids."""
    deployment = open_deployment(path)
    processes = belonging(deployment)
    supervisor = deployment.state().get("supervisor")
    if supervisor in processes:
        os.kill(supervisor, signal.SIGTERM)
        _wait(lambda: supervisor not in belonging(deployment), GRACE + 6)
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in belonging(deployment):
            _signal(pid, number)
        _wait(lambda: not belonging(deployment), 4.0)
    return processes


def running(deployment: Deployment) -> bool:
    """Whether the supervisor of this folder is alive."""
    return deployment.state().get("supervisor") in belonging(deployment)


def alive(pid: int) -> bool:
    """Whether a process runs; zombies do not count."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    process_state = stat.rpartition(")")[2].split()[0]
    return process_state not in ("Z", "X")


def belonging(deployment: Deployment) -> list[int]:
    """Ids of this folder's processes, which have its name in their environment."""
    mark = f"{MARK}={deployment.path}".encode()
    pids = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        pid = int(entry.parent.name)
        try:
            variables = entry.read_bytes().split(b"\0")
        except OSError:  # the process of another user, or ended
            continue
        if mark in variables and pid != os.getpid():
            pids.append(pid)
    return sorted(pids)


def _wait(over: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not over() and time.monotonic() < deadline:
        time.sleep(0.1)


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
