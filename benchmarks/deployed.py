"""A round on real nodes: poise against a bare Flower app (its own FedAvg) on the same four nodes.

Run it with ``python benchmarks/deployed.py [--repeats 2] [--rounds 4] [--write
docs/benchmarks.md]`` and the extra ``[flower]``. One SuperLink and four SuperNodes with TLS and
registered keys on the loopback; both sides send the same `mlp` to all nodes, which train on the
same files for the same number of steps, and measure the accuracy on the same held-out file. They
take turns; a run's first round, which also waits for the app to start, is left out.
"""

from __future__ import annotations

import signal
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
import torch
from bare_flower.bare_app.task import BATCH, EPOCHS, HIDDEN, LR
from page import publish

import poise
from poise.apps.deploy import control
from poise.apps.deploy.folder import Deployment, make_deployment, read_toml
from poise.apps.deploy.jobs import run_deployed
from poise.apps.deploy.programs import flwr
from poise.config.experiment import load

BARE = Path(__file__).parent / "bare_flower"
NODES, GOAL = 4, 1.1


def made(folder: Path) -> Deployment:
    """A deployment whose nodes hold a quarter of the digits each, as files of their own."""
    fed = poise.federation("digits", "iid", clients=NODES)
    deployment = make_deployment(folder / "nodes", NODES, {"source": "digits"})
    for k in range(NODES):
        _write(deployment.node(k) / "mine.npz", *fed.client(k))
        table = {
            **read_toml(deployment.node(k) / "node.toml"),
            "data": {"file": "mine.npz", "classes": 10},
        }
        (deployment.node(k) / "node.toml").write_text(
            tomli_w.dumps(table), encoding="utf-8"
        )
    _write(folder / "test.npz", *fed.test)
    return deployment


def _write(file: Path, x: Any, y: Any) -> None:
    np.savez(
        file,
        x=np.asarray(x, dtype=np.float32).reshape(len(y), -1),
        y=np.asarray(y, dtype=np.int64),
    )


def of_poise(deployment: Deployment, folder: Path, rounds: int) -> list[float]:
    """When each round ended, and the accuracy, of a run of poise."""
    tables = {
        "data": {"source": "nodes", "test": str(folder / "test.npz")},
        "task": {"model": "mlp", "hidden": HIDDEN},
        "solver": {"name": "sgd", "lr": LR, "epochs": EPOCHS, "batch_size": BATCH},
        "run": {"rounds": rounds},
    }
    file = folder / "exp.toml"
    file.write_text(tomli_w.dumps(tables), encoding="utf-8")
    times: list[float] = []
    out = Path(tempfile.mkdtemp(dir=folder))
    (run,) = run_deployed(
        load(file), deployment.path, out, observe=lambda line: times.append(time.time())
    )
    print(
        f"poise: rounds ended {_gaps(times)} s apart, accuracy {run.metric('accuracy')[-1]:.3f}",
        flush=True,
    )
    return times


def of_flower(deployment: Deployment, folder: Path, rounds: int) -> list[float]:
    """Likewise of the bare app."""
    file = Path(tempfile.mkdtemp(dir=folder)) / "times"
    config = f'rounds={rounds} times="{file}" test="{folder / "test.npz"}"'
    flwr(deployment, "run", str(BARE), "poise", "--run-config", config)
    lines: list[str] = []
    until = time.monotonic() + 300
    while not lines or lines[-1] != "done":
        if time.monotonic() > until:
            raise TimeoutError(
                f"the bare app ended no more rounds than {lines}; see {deployment.logs}"
            )
        time.sleep(0.1)
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    times = [float(line.split()[1]) for line in lines[1:-1]]
    print(
        f"bare:  rounds ended {_gaps(times)} s apart, accuracy {lines[-2].split()[2]}",
        flush=True,
    )
    return times


def _gaps(times: list[float]) -> list[float]:
    return [round(float(gap), 2) for gap in np.diff(times)]


def measure(repeats: int, rounds: int) -> dict[str, Any]:
    """Seconds of a round of either, over all rounds but the first of each run."""
    found: dict[str, list[float]] = {"poise": [], "bare": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        deployment = made(folder)
        began = time.perf_counter()
        control.up(deployment.path, seconds=300)
        up = time.perf_counter() - began
        try:
            for _ in range(repeats):
                found["poise"] += np.diff(of_poise(deployment, folder, rounds)).tolist()
                found["bare"] += np.diff(of_flower(deployment, folder, rounds)).tolist()
        finally:
            control.down(deployment.path)
    return {**found, "up": up}


def text(found: dict[str, Any]) -> str:
    """What was measured, as a paragraph of the benchmark page."""
    from flwr.supercore.version import package_version

    p, b = (statistics.median(found[name]) for name in ("poise", "bare"))
    spread = {
        name: f"{min(found[name]):.1f} to {max(found[name]):.1f}"
        for name in ("poise", "bare")
    }
    return f"""## Real nodes

Measured on {datetime.now(UTC).date()} with `python benchmarks/deployed.py`: 2 cores, torch
{torch.__version__}, flwr
{package_version}; medians of {len(found["poise"])} rounds each, in turns. A round of four nodes on
the loopback (TLS,
registered keys; `mlp({HIDDEN})` on the digits, {EPOCHS} epochs of batch {BATCH}): poise takes
{p:.1f} s ({spread["poise"]}).
A bare Flower app with Flower's own `FedAvg`, the same model and messages on the same nodes takes
{b:.1f} s
({spread["bare"]}): **{p / b:.2f} ×** (goal ≤ {GOAL}). The deployment was ready after
{found["up"]:.0f} s.
"""


if __name__ == "__main__":
    signal.signal(
        signal.SIGTERM, lambda number, frame: sys.exit(1)
    )  # the nodes are brought down all the same
    publish(
        __doc__, "deployed", lambda **given: text(measure(**given)), repeats=2, rounds=4
    )
