"""Keep a deployment's processes alive: ``python -m poise.deploy.supervisor DIR``.

A process that ends is started again, after a pause that grows while it keeps ending at once. SIGTERM ends all.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from poise.core.errors import InvalidOption
from poise.deploy.folder import HOST, NODE, Deployment, open_deployment, read_toml

SHORT = 10.0  # seconds; a process that lived for less waits longer before its next start
LONGEST = 30.0  # the longest pause
GRACE = 8.0  # seconds that processes get to end by themselves


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
    pause: float = field(default=0.5)
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
                self.command, env=dict(self.environment), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                cwd=self.log.parent, start_new_session=True,
            )  # fmt: skip
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


class Supervisor:
    """All processes of one deployment."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.children: list[Child] = []
        self.ending = False

    def run(self) -> None:
        """Start everything in order, and tend it until SIGTERM."""
        signal.signal(signal.SIGTERM, self._end)
        signal.signal(signal.SIGINT, self._end)
        try:
            self._add(superlink(self.deployment))
            self._until_open(self.deployment.port)
            register(self.deployment)
            self._add(superexec(self.deployment))
            for client in range(self.deployment.nodes):
                self._add(supernode(self.deployment, client))
            self._write("up")
            while not self.ending:
                if sum(child.tend() for child in self.children):
                    self._write("up")
                time.sleep(0.2)
        except BaseException as error:
            self._write("failed", str(error))
            raise
        finally:
            self._stop()
        self._write("down")

    def _end(self, number: int, frame: FrameType | None) -> None:
        self.ending = True

    def _add(self, child: Child) -> None:
        child.tend()
        self.children.append(child)
        self._write("starting")

    def _until_open(self, port: int, seconds: float = 60.0) -> None:
        """Wait for the server's port, tending what has been started."""
        until = time.monotonic() + seconds
        while not listening(port):
            if self.ending or time.monotonic() > until:
                raise InvalidOption(f"the SuperLink does not listen on port {port}", "see logs/superlink.log")
            if sum(child.tend() for child in self.children):
                self._write("starting")
            time.sleep(0.2)

    def _stop(self) -> None:
        for child in reversed(self.children):
            child.signal(signal.SIGTERM)
        until = time.monotonic() + GRACE
        while time.monotonic() < until and any(c.process and c.process.poll() is None for c in self.children):
            time.sleep(0.1)
        for child in self.children:
            child.signal(signal.SIGKILL)
            if child.process is not None:
                child.process.wait()

    def _write(self, status: str, error: str = "") -> None:
        running = {
            c.name: {"pid": None if c.process is None else c.process.pid, "starts": c.starts} for c in self.children
        }
        state = {"status": status, "supervisor": os.getpid(), "processes": running, "error": error}
        file = self.deployment.path / "state.json"
        draft = file.with_suffix(".new")
        draft.write_text(json.dumps(state, indent=1), encoding="utf-8")
        draft.replace(file)


def listening(port: int) -> bool:
    """Whether somebody listens on this port of the loopback."""
    with socket.socket() as place:
        place.settimeout(1.0)
        return place.connect_ex((HOST, port)) == 0


def superlink(deployment: Deployment) -> Child:
    """The server that nodes connect to: TLS, registered keys only, its state on disk."""
    server = deployment.server
    command = [
        "flower-superlink", "--ssl-certfile", str(server / "tls.pem"), "--ssl-keyfile", str(server / "tls.key"),
        "--ssl-ca-certfile", str(server / "ca.crt"), "--enable-supernode-auth", "--isolation", "process",
        "--superexec-auth-secret-file", str(server / "secret"), "--database", str(server / "state.db"),
        "--disable-runtime-dependency-installation", "--host", HOST, "--port", str(deployment.port),
    ]  # fmt: skip
    return _child(deployment, "superlink", command)


def superexec(deployment: Deployment) -> Child:
    """The process that starts the engine for every run."""
    server = deployment.server
    command = [
        "flower-superexec", "--runtime-api-address", f"{HOST}:{deployment.port}",
        "--root-certificates", str(server / "ca.crt"), "--superexec-auth-secret-file", str(server / "secret"),
    ]  # fmt: skip
    return _child(deployment, "superexec", command)


def supernode(deployment: Deployment, client: int) -> Child:
    """A node, with its own key and its own certificate."""
    folder = deployment.node(client)
    config = read_toml(folder / "node.toml")
    command = [
        "flower-supernode", "--root-certificates", str(folder / "ca.crt"), "--superlink", str(config["superlink"]),
        "--auth-supernode-private-key", str(folder / "node.key"), "--host", HOST, "--port", str(config["port"]),
        "--ssl-certfile", str(folder / "tls.pem"), "--ssl-keyfile", str(folder / "tls.key"),
        "--ssl-ca-certfile", str(folder / "ca.crt"),
    ]  # fmt: skip
    return _child(deployment, folder.name, command, {NODE: str(folder), "FLWR_HOME": str(folder / "flwr")})


def _child(deployment: Deployment, name: str, command: list[str], more: Mapping[str, str] | None = None) -> Child:
    program = Path(sys.executable).parent / command[0]
    environment = {**deployment.environment, **(more or {})}
    return Child(name, [str(program), *command[1:]], environment, deployment.logs / f"{name}.log")


def register(deployment: Deployment) -> None:
    """Register the keys of nodes that are not yet, and note which node is which client."""
    known = deployment.registered()
    for client in range(deployment.nodes):
        if client not in known:
            told = flwr(deployment, "supernode", "register", str(deployment.node(client) / "node.pub"), "poise")
            known[client] = int(told["node-id"])
            text = json.dumps({str(c): str(node) for c, node in known.items()})
            (deployment.server / "nodes.json").write_text(text, encoding="utf-8")


def flwr(deployment: Deployment, *words: str) -> dict[str, Any]:
    """What Flower's own command line answers."""
    program = str(Path(sys.executable).parent / "flwr")
    done = subprocess.run(
        [program, *words, "--format", "json"], env=deployment.environment, capture_output=True, text=True, check=False,
        cwd=deployment.path, timeout=120,
    )  # fmt: skip
    try:
        told: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        told = {}
    if not told.get("success"):
        said = " ".join(str(told.get("error-message") or done.stderr or done.stdout or "no answer").split())
        raise InvalidOption(f"flwr {words[0]}: {said}")
    return told


if __name__ == "__main__":
    Supervisor(open_deployment(sys.argv[1])).run()
