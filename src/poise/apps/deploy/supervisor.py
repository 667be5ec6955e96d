"""Keep processes alive: ``python -m poise.apps.deploy.supervisor DIR`` those of a deployment.

A process that ends is started again, after a pause that grows while it keeps ending at once.
SIGTERM ends all.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from poise.apps.deploy.folder import Deployment, open_deployment
from poise.apps.deploy.programs import Child, listening, register, superexec, superlink, supernode
from poise.core.errors import InvalidOption

GRACE = 8.0  # seconds that processes get to end by themselves


class Tending:
    """Some processes that are started again whenever they end, until SIGTERM or SIGINT."""

    def __init__(self) -> None:
        self.children: list[Child] = []
        self.ending = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)

    def _end(self, number: int, frame: FrameType | None) -> None:
        self.ending = True

    def tend(self) -> bool:
        """Start again what has ended; whether anything changed."""
        return sum(child.tend() for child in self.children) > 0

    def stop(self) -> None:
        """End all of them, those started last first."""
        for child in reversed(self.children):
            child.signal(signal.SIGTERM)
        until = time.monotonic() + GRACE
        while time.monotonic() < until and any(
            c.process and c.process.poll() is None for c in self.children
        ):
            time.sleep(0.1)
        for child in self.children:
            child.signal(signal.SIGKILL)
            if child.process is not None:
                child.process.wait()


class Supervisor(Tending):
    """All processes of one deployment on this machine."""

    def __init__(self, deployment: Deployment, nodes: bool) -> None:
        super().__init__()
        self.deployment = deployment
        self.nodes = nodes

    def run(self) -> None:
        """Start everything in order, and tend it until the end."""
        made = self.deployment
        try:
            self._add(superlink(made))
            self._until_open()
            register(made)
            self._add(superexec(made))
            for client in range(made.nodes) if self.nodes else ():
                self._add(supernode(made.node(client), made.path, made.logs / f"node-{client}.log"))
            self._write("up")
            while not self.ending:
                if self.tend():
                    self._write("up")
                time.sleep(0.2)
        except BaseException as error:
            self._write("failed", str(error))
            raise
        finally:
            self.stop()
        self._write("down")

    def _add(self, child: Child) -> None:
        child.tend()
        self.children.append(child)
        self._write("starting")

    def _until_open(self, seconds: float = 60.0) -> None:
        """Wait for the server's port, tending what has been started."""
        until = time.monotonic() + seconds
        while not listening(self.deployment.port, self.deployment.host):
            if self.ending or time.monotonic() > until:
                port = self.deployment.port
                raise InvalidOption(
                    f"the SuperLink does not listen on port {port}", "see logs/superlink.log"
                )
            if self.tend():
                self._write("starting")
            time.sleep(0.2)

    def _write(self, status: str, error: str = "") -> None:
        running = {
            c.name: {"pid": None if c.process is None else c.process.pid, "starts": c.starts}
            for c in self.children
        }
        state = {"status": status, "supervisor": os.getpid(), "processes": running, "error": error}
        file = self.deployment.path / "state.json"
        draft = file.with_suffix(".new")
        draft.write_text(json.dumps(state, indent=1), encoding="utf-8")
        draft.replace(file)


def run_node(path: str | Path) -> None:
    """Keep the node of one folder alive in this process, until SIGTERM or Ctrl-C; a folder that
    `check_node` passed.
    """
    folder = Path(path).resolve()
    tending = Tending()
    tending.children.append(supernode(folder, folder, folder / "node.log"))
    try:
        while not tending.ending:
            tending.tend()
            time.sleep(0.2)
    finally:
        tending.stop()


if __name__ == "__main__":
    Supervisor(open_deployment(sys.argv[1]), nodes="--server-only" not in sys.argv[2:]).run()
