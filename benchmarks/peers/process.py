"""A peer as a process of its own, in its own environment, that works only when told to.

Between its turns all its processes are stopped, so that none of them disturbs the peer at work.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
PATIENCE = 600.0  # seconds; a peer that takes longer for an answer is given up
TICK = os.sysconf("SC_CLK_TCK")
# poise, which the driver loads, sets MKL's code path for its own process; peers choose theirs
OURS = "MKL_CBWR"


@dataclass(frozen=True)
class Peer:
    """A tool with the configurations among which its best is chosen, and the models that its
    adapter lacks.
    """

    script: str
    variants: tuple[str, ...]  # processes, devices or threads
    environment: str | None = None  # None: the one of the driver
    lacks: tuple[str, ...] = ()
    reference: bool = False  # computes gradients only, learns nothing
    layouts: tuple[str, ...] = (
        "",
    )  # for convolutions also with channels last in memory

    def configurations(self, model: str) -> list[str]:
        """What is tried for a model."""
        return [
            v + layout
            for v in self.variants
            for layout in (self.layouts if model == "cnn" else ("",))
        ]


PEERS = {
    "poise": Peer("with_poise.py", ("",)),
    "flower": Peer("with_flower.py", ("",), "flower", layouts=("", "c")),
    "pfl": Peer("with_pfl.py", ("2", "1"), "pfl", layouts=("", "c")),
    "fedjax": Peer("with_fedjax.py", ("2", "1"), "fedjax"),
    "plain": Peer("plain.py", ("1", "2"), layouts=("", "c")),
    "bound": Peer("bound.py", ("1", "2", "w"), reference=True),
}
TITLES = {
    "poise": "poise",
    "flower": "Flower",
    "pfl": "pfl-research",
    "fedjax": "FedJAX",
    "plain": "plain loop",
    "bound": "lower bound",
}


class PeerFailed(RuntimeError):
    """A peer ended or did not answer; the message says what it printed last."""


@dataclass
class Running:
    """A started peer. ``startup`` is the time from its start until it was ready."""

    name: str
    variant: str
    file: Path
    about: dict[str, Any] = field(init=False)
    startup: float = field(init=False)

    def __post_init__(self) -> None:
        peer = PEERS[self.name]
        python = (
            HERE / ".envs" / peer.environment / "bin" / "python"
            if peer.environment
            else Path(sys.executable)
        )
        if not python.exists():
            raise PeerFailed(
                f"{self.name} is not installed: run {HERE.name}/environments.py"
            )
        ours = (
            "" if peer.environment else os.environ.get("PYTHONPATH", "")
        )  # another environment has its own packages
        path = os.pathsep.join(
            filter(None, [str(HERE), str(HERE / "adapters"), str(HERE.parent), ours])
        )
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        began = time.perf_counter()
        self._process = subprocess.Popen(
            [
                str(python),
                str(HERE / "adapters" / peer.script),
                str(self.file),
                *filter(None, [self.variant]),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={
                **{name: value for name, value in os.environ.items() if name != OURS},
                "PYTHONPATH": path,
            },
        )
        self.about = self._answer("ready")
        self.startup = time.perf_counter() - began

    def go(self, rounds: int) -> float:
        """Seconds of so many rounds."""
        self._order(f"go {rounds}")
        return float(self._answer("seconds"))

    def model(self) -> dict[str, np.ndarray]:
        """The weights that the peer has now, by PyTorch's names."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "model.npz"
            self._order(f"model {file}")
            self._answer("model")
            with np.load(file) as found:
                return {name: found[name] for name in found.files}

    def rest(self) -> None:
        """Stop all its processes until its next order."""
        send_to(tree_of(self._process.pid), signal.SIGSTOP)

    def peak_megabytes(self) -> float:
        """Sum of the peaks of all its processes (what they share is counted in each)."""
        return sum(_status(pid, "VmHWM") for pid in tree_of(self._process.pid)) / 1024

    def processor_seconds(self) -> float:
        """What all its processes have used so far."""
        return sum(_ticks(pid) for pid in tree_of(self._process.pid)) / TICK

    def close(self) -> None:
        """Let it end; what is left of it half a minute later is ended."""
        tree = tree_of(self._process.pid)
        if self._process.poll() is None:
            self._order("end")
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        send_to(tree[1:], signal.SIGTERM)  # those that outlived their parent
        self._log.close()

    def _order(self, line: str) -> None:
        assert self._process.stdin is not None
        send_to(tree_of(self._process.pid), signal.SIGCONT)
        with contextlib.suppress(
            BrokenPipeError
        ):  # the answer that does not come says why
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def _answer(self, key: str) -> Any:
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], PATIENCE)
        line = self._process.stdout.readline() if readable else ""
        if not line:
            self._process.kill()
            self._log.seek(0)
            raise PeerFailed(
                f"{self.name} {self.variant}: no answer; it said:\n{self._log.read()[-2000:]}"
            )
        return json.loads(line)[key]


def tree_of(root: int) -> list[int]:
    """The process and all that descend from it, it first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (parent := _parent(int(entry.name))) is not None:
            children.setdefault(parent, []).append(int(entry.name))
    tree = [root]
    for pid in tree:
        tree += children.get(pid, [])
    return tree


def send_to(pids: list[int], number: signal.Signals) -> None:
    """Send a signal to processes; those that have ended are left out."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _fields(pid: int) -> list[str]:
    """What stands in /proc behind the name of the program; empty where it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _parent(pid: int) -> int | None:
    found = _fields(pid)
    return int(found[1]) if found else None


def _ticks(pid: int) -> int:
    found = _fields(pid)
    return int(found[11]) + int(found[12]) if found else 0


def _status(pid: int, name: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(name)), 0)
