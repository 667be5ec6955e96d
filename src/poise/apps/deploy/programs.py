"""The programs of Flower in a deployment, and how poise starts them."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poise.apps.deploy.folder import (
    BOOT,
    LOOPBACK,
    NODE,
    Deployment,
    environment,
    read_toml,
)
from poise.apps.deploy.guard import TRUSTED
from poise.core.errors import InvalidOption, require

SHORT = 10.0  # seconds; the pause before a restart doubles after a shorter life
LONGEST = 30.0  # the longest pause, in seconds


@dataclass
class Child:
    """A process that is restarted when it ends."""

    name: str
    command: list[str]
    environment: Mapping[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0
    started: float = 0.0
    pause: float = 0.5
    due: float = 0.0
    news: str = ""  # what `tend` did last

    @property
    def running(self) -> bool:
        """Whether the process runs."""
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int | None:
        """The id of the process; None if it is not started."""
        if self.process is None:
            return None
        return self.process.pid

    def tend(self) -> bool:
        """Start the process if down and its pause is over; whether anything changed."""
        now = time.monotonic()
        if self.process is not None:
            if self.process.poll() is None:
                return False
            self._kill_group(self.process.pid)
            if now - self.started < SHORT:
                self.pause = min(self.pause * 2, LONGEST)
            else:
                self.pause = 0.5
            self.news = (
                f"{self.name}: process {self.process.pid} "
                f"{_ending(self.process.returncode)}; starts again in {self.pause:g} s"
            )
            self.process = None
            self.due = now + self.pause
            return True
        if now < self.due:
            return False
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                env={**self.environment, BOOT: secrets.token_hex(8)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.log.parent,
                start_new_session=True,
            )
        self.starts += 1
        self.started = now
        self.news = f"{self.name}: process {self.process.pid} started"
        if self.starts > 1:
            self.news += f" (start {self.starts})"
        return True

    @staticmethod
    def _kill_group(group: int) -> None:
        """Kill the children of a dead process, which may hold the next one's port."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)

    def signal(self, number: int) -> None:
        """Send a signal to the process and its children."""
        if self.process is not None and self.process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)


def _ending(code: int) -> str:
    """How a process ended, in words.

    >>> _ending(0), _ending(3), _ending(-9)
    ('ended', 'ended with exit code 3', 'was killed by SIGKILL')
    """
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    if code:
        return f"ended with exit code {code}"
    return "ended"


def listening(port: int, host: str = LOOPBACK) -> bool:
    """Whether a process listens on this port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((host, port)) == 0


def superlink(deployment: Deployment) -> Child:
    """Flower's SuperLink for the nodes: TLS, registered keys only, state on disk."""
    server = deployment.server
    command = [
        "flower-superlink",
        "--ssl-certfile",
        str(server / "tls.pem"),
        "--ssl-keyfile",
        str(server / "tls.key"),
        "--ssl-ca-certfile",
        str(server / "ca.crt"),
        "--enable-supernode-auth",
        "--isolation",
        "process",
        "--superexec-auth-secret-file",
        str(server / "secret"),
        "--database",
        str(server / "state.db"),
        "--disable-runtime-dependency-installation",
        "--host",
        deployment.host,
        "--port",
        str(deployment.port),
    ]
    return _child(deployment, "superlink", command)


def superexec(deployment: Deployment) -> Child:
    """Flower's SuperExec, which starts the server app for every run."""
    server = deployment.server
    command = [
        "flower-superexec",
        "--runtime-api-address",
        f"{deployment.host}:{deployment.port}",
        "--root-certificates",
        str(server / "ca.crt"),
        "--superexec-auth-secret-file",
        str(server / "secret"),
    ]
    return _child(deployment, "superexec", command)


def supernode(folder: Path, marked: Path, log: Path) -> Child:
    """Flower's SuperNode for a node's folder, with the key and certificate in it."""
    config = read_toml(folder / "node.toml", "give the folder of a node: DIR/node-0")
    command = [
        "flower-supernode",
        "--root-certificates",
        str(folder / "ca.crt"),
        "--superlink",
        str(config["superlink"]),
        "--auth-supernode-private-key",
        str(folder / "node.key"),
        "--host",
        LOOPBACK,
        "--port",
        str(config["port"]),
        "--ssl-certfile",
        str(folder / "tls.pem"),
        "--ssl-keyfile",
        str(folder / "tls.key"),
        "--ssl-ca-certfile",
        str(folder / "local.crt"),
        "--trusted-entities",
        str(folder / TRUSTED),
    ]
    variables = {**environment(marked, folder / "flwr"), NODE: str(folder)}
    return Child(folder.name, _with_launcher(command), environment=variables, log=log)


def _child(deployment: Deployment, name: str, command: list[str]) -> Child:
    log = deployment.logs / f"{name}.log"
    return Child(
        name, _with_launcher(command), environment=deployment.environment, log=log
    )


def _with_launcher(command: list[str]) -> list[str]:
    """The command to start a program of Flower through `poise.apps.deploy.launch`."""
    return [
        sys.executable,
        "-m",
        "poise.apps.deploy.launch",
        program(command[0]),
        *command[1:],
    ]


def program(name: str) -> str:
    """The path of a program of Flower, which lies beside this Python."""
    file = Path(sys.executable).parent / name
    require(
        file.exists(),
        f"deployments need Flower: {file} is missing",
        "pip install 'poise[flower]'",
    )
    return str(file)


def register(deployment: Deployment) -> None:
    """Register the keys of new nodes, and unregister keys that were taken away."""
    node_ids = deployment.registered()
    changes = deployment.changes()
    for node_id in list(changes["retired"]):
        _unregister(deployment, node_id)
        changes["retired"].remove(node_id)
        deployment.write_changes(changes)
    for client in range(deployment.nodes):
        if client in node_ids or client in changes["revoked"]:
            continue
        key = str(deployment.node(client) / "node.pub")
        answer = flwr(deployment, "supernode", "register", key, "poise")
        node_ids[client] = int(answer["node-id"])
        deployment.write_registered(node_ids)


def _unregister(deployment: Deployment, node_id: int) -> None:
    """Unregister a node's key; a key that is not registered is no error."""
    listed = flwr(deployment, "supernode", "list", "poise")["nodes"]
    gone = ("unregistered", "deleted")
    if node_id in {int(n["node-id"]) for n in listed if n["status"] not in gone}:
        flwr(deployment, "supernode", "unregister", str(node_id), "poise")


def flwr(deployment: Deployment, *arguments: str) -> dict[str, Any]:
    """Call Flower's command line ``flwr``; returns its JSON answer."""
    process = subprocess.run(
        _with_launcher(["flwr", *arguments, "--format", "json"]),
        env=deployment.environment,
        capture_output=True,
        text=True,
        check=False,
        cwd=deployment.path,
        timeout=120,
    )
    try:
        answer: dict[str, Any] = json.loads(process.stdout)
    except ValueError:
        answer = {}
    if not answer.get("success"):
        text = (
            answer.get("error-message")
            or process.stderr
            or process.stdout
            or "no answer"
        )
        one_line = " ".join(str(text).split())
        raise InvalidOption(f"flwr {arguments[0]}: {one_line}")
    return answer
