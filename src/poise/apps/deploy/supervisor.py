"""Keep the processes of a deployment alive: ``python -m poise.apps.deploy.supervisor DIR``.

The supervisor restarts a process that ends, after a pause that grows while the process
keeps ending at once. SIGTERM stops all processes.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from poise.apps.deploy.events import Event, EventLog
from poise.apps.deploy.folder import Deployment, open_deployment
from poise.apps.deploy.node_watch import NodeWatch
from poise.apps.deploy.programs import (
    Child,
    listening,
    register,
    superexec,
    superlink,
    supernode,
)
from poise.core.errors import InvalidOption

GRACE = 8.0  # seconds between SIGTERM and SIGKILL


class ProcessGroup:
    """Processes that are restarted whenever they end, until SIGTERM or SIGINT."""

    def __init__(self) -> None:
        self.children: list[Child] = []
        self.stopping = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._request_stop)

    def _request_stop(self, number: int, frame: FrameType | None) -> None:
        self.stopping = True

    def tend(self) -> bool:
        """Restart processes that have ended; whether anything changed."""
        return sum(child.tend() for child in self.children) > 0

    def stop(self) -> None:
        """Stop all processes, the last started first."""
        for child in reversed(self.children):
            child.signal(signal.SIGTERM)
        deadline = time.monotonic() + GRACE
        while time.monotonic() < deadline and any(
            child.running for child in self.children
        ):
            time.sleep(0.1)
        for child in self.children:
            child.signal(signal.SIGKILL)
            if child.process is not None:
                child.process.wait()


class Supervisor(ProcessGroup):
    """All processes of one deployment on this machine."""

    def __init__(self, deployment: Deployment, nodes: bool) -> None:
        super().__init__()
        self.deployment = deployment
        self.nodes = nodes
        self.log = EventLog(deployment.server)
        self.watch = NodeWatch(deployment, self.log)

    def run(self) -> None:
        """Start all processes in order, and keep them alive until a signal arrives."""
        deployment = self.deployment
        try:
            self._add(superlink(deployment))
            self._wait_for_superlink()
            register(deployment)
            self._add(superexec(deployment))
            if self.nodes:
                for client in deployment.admitted():
                    log = deployment.logs / f"node-{client}.log"
                    self._add(supernode(deployment.node(client), deployment.path, log))
            self._write("up")
            self._note("the deployment is up")
            while not self.stopping:
                self._drop_revoked()
                if self.tend():
                    self._write("up")
                self.watch.look()
                time.sleep(0.2)
            self._write("stopping")
        except BaseException as error:
            self._write("failed", str(error))
            self._note(f"the deployment failed: {error}", trouble=True)
            raise
        finally:
            self.stop()
        self._write("down")
        self._note("the deployment was stopped")

    def tend(self) -> bool:
        """Restart processes that have ended, and record both."""
        changed = False
        for child in self.children:
            if not child.tend():
                continue
            changed = True
            trouble = not child.running or child.starts > 1
            self._note(child.news, client=self._client_of(child), trouble=trouble)
        return changed

    def _note(
        self, text: str, client: int | None = None, trouble: bool = False
    ) -> None:
        self.log.write(Event(time.time(), text, client=client, trouble=trouble))

    @staticmethod
    def _client_of(child: Child) -> int | None:
        """The client whose node a process is; None for the server's processes."""
        kind, _, number = child.name.partition("-")
        if kind == "node" and number.isdigit():
            return int(number)
        return None

    def _drop_revoked(self) -> None:
        """Stop restarting nodes that were revoked, once their processes have ended."""
        if all(child.running for child in self.children):
            return
        revoked = {f"node-{c}" for c in self.deployment.changes()["revoked"]}
        self.children = [
            child
            for child in self.children
            if child.running or child.name not in revoked
        ]

    def _add(self, child: Child) -> None:
        child.tend()
        self._note(child.news, client=self._client_of(child))
        self.children.append(child)
        self._write("starting")

    def _wait_for_superlink(self, seconds: float = 60.0) -> None:
        """Wait until the SuperLink listens, and keep started processes alive."""
        deadline = time.monotonic() + seconds
        while not listening(self.deployment.port, self.deployment.host):
            if self.stopping or time.monotonic() > deadline:
                port = self.deployment.port
                raise InvalidOption(
                    f"the SuperLink does not listen on port {port}",
                    "see logs/superlink.log",
                )
            if self.tend():
                self._write("starting")
            time.sleep(0.2)

    def _write(self, status: str, error: str = "") -> None:
        processes = {
            child.name: {"pid": child.pid, "starts": child.starts}
            for child in self.children
        }
        state = {
            "status": status,
            "supervisor": os.getpid(),
            "processes": processes,
            "error": error,
        }
        file = self.deployment.path / "state.json"
        draft = file.with_suffix(".new")
        draft.write_text(json.dumps(state, indent=1), encoding="utf-8")
        draft.replace(file)


def run_node(path: str | Path) -> None:
    """Keep the node of a folder alive until SIGTERM or Ctrl-C.

    Call `check_node` before.
    """
    folder = Path(path).resolve()
    group = ProcessGroup()
    group.children.append(supernode(folder, folder, folder / "node.log"))
    try:
        while not group.stopping:
            group.tend()
            time.sleep(0.2)
    finally:
        group.stop()


if __name__ == "__main__":
    Supervisor(
        open_deployment(sys.argv[1]), nodes="--server-only" not in sys.argv[2:]
    ).run()
