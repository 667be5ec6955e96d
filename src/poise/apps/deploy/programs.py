"""The programs of Flower that make up a deployment, and how each is started."""

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

from poise.apps.deploy.folder import BOOT, LOOPBACK, NODE, Deployment, environment, read_toml
from poise.core.errors import InvalidOption, require

SHORT = 10.0  # seconds; a process that lived for less waits longer before its next start
LONGEST = 30.0  # the longest pause


@dataclass
class Child:
    """One process, and how often it was started."""

    name: str
    command: list[str]
    environment: Mapping[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0
    began: float = 0.0
    pause: float = 0.5
    due: float = 0.0

    def tend(self) -> bool:
        """Start it where it is not running and its pause is over; whether anything changed."""
        now = time.monotonic()
        if self.process is not None:
            if self.process.poll() is None:
                return False
            self._sweep(self.process.pid)
            lived = now - self.began
            self.pause = min(self.pause * 2, LONGEST) if lived < SHORT else 0.5
            self.process, self.due = None, now + self.pause
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
        self.starts, self.began = self.starts + 1, now
        return True

    @staticmethod
    def _sweep(group: int) -> None:
        """End what a process that died left behind: the next one needs its port."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)

    def signal(self, number: int) -> None:
        """To the process and those that it started."""
        if self.process is not None and self.process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)


def listening(port: int, host: str = LOOPBACK) -> bool:
    """Whether somebody listens on this port."""
    with socket.socket() as place:
        place.settimeout(1.0)
        return place.connect_ex((host, port)) == 0


def superlink(deployment: Deployment) -> Child:
    """The server that nodes connect to: TLS, registered keys only, its state on disk."""
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
    """The process that starts the engine for every run."""
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
    """A node, with its own key and its own certificate; all it needs is in its folder."""
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
        str(folder / "ca.crt"),
    ]
    mine = {**environment(marked, folder / "flwr"), NODE: str(folder)}
    return Child(folder.name, _launched(command), mine, log)


def _child(deployment: Deployment, name: str, command: list[str]) -> Child:
    log = deployment.logs / f"{name}.log"
    return Child(name, _launched(command), deployment.environment, log)


def _launched(command: list[str]) -> list[str]:
    return [sys.executable, "-m", "poise.apps.deploy.launch", program(command[0]), *command[1:]]


def program(name: str) -> str:
    """Flower's programs lie beside this Python."""
    file = Path(sys.executable).parent / name
    require(
        file.exists(), f"deployments need Flower: there is no {file}", "pip install 'poise[flower]'"
    )
    return str(file)


def register(deployment: Deployment) -> None:
    """Register the keys of nodes that are not yet, and note which node is which client."""
    known = deployment.registered()
    for client in range(deployment.nodes):
        if client not in known:
            told = flwr(
                deployment,
                "supernode",
                "register",
                str(deployment.node(client) / "node.pub"),
                "poise",
            )
            known[client] = int(told["node-id"])
            text = json.dumps({str(c): str(node) for c, node in known.items()})
            (deployment.server / "nodes.json").write_text(text, encoding="utf-8")


def flwr(deployment: Deployment, *words: str) -> dict[str, Any]:
    """What Flower's own command line answers."""
    done = subprocess.run(
        [program("flwr"), *words, "--format", "json"],
        env=deployment.environment,
        capture_output=True,
        text=True,
        check=False,
        cwd=deployment.path,
        timeout=120,
    )
    try:
        told: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        told = {}
    if not told.get("success"):
        said = " ".join(
            str(told.get("error-message") or done.stderr or done.stdout or "no answer").split()
        )
        raise InvalidOption(f"flwr {words[0]}: {said}")
    return told
