"""The cost of flushing rounds to the disk: every round, or 0.2 seconds of rounds together.

Run it with ``python benchmarks/durability.py [--repeats 5] [--write docs/benchmarks.md]``. Each
kind of flush takes its turn. The clients hold few samples, so that the ledger weighs most.
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from page import publish

import poise
from poise.ledger import store

KINDS = {"no folder": None, "0.2 seconds together": 0.2, "every round": 0.0}
ROWS: dict[str, dict[str, Any]] = {
    "synchronous, 10 clients, 7,850 parameters": {"rounds": 300},
    "the same, every model kept": {"rounds": 300, "keep": "all"},
    "asynchronous, 10,000 arrivals": {
        "rounds": 10_000,
        "clock": poise.clocks.Asynchronous("F80"),
    },
}


def federation() -> Any:
    """Ten clients with ten random images each."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (100, 1, 28, 28), dtype=np.uint8)
    return poise.federation((x, rng.integers(0, 10, 100)), clients=10)


def milliseconds(fed: Any, kind: float | None, options: dict[str, Any]) -> float:
    """Milliseconds per round of one run."""
    solver = poise.solvers.SGD(lr=0.01, steps=1, batch_size=5)
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        out = None
        if kind is not None:
            store.GROUPED = kind
            out = Path(folder) / "run"
        began = time.perf_counter()
        poise.train(
            fed,
            poise.task("logistic"),
            solver,
            out=out,
            evaluate_every=10**9,
            **options,
        ).close()
        return 1e3 * (time.perf_counter() - began) / options["rounds"]


def flush_time() -> float:
    """Milliseconds of one flush of 31 kB, the model of these rows."""
    times = []
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        for number in range(100):
            began = time.perf_counter()
            store.write_whole(Path(folder) / str(number), bytes(31_000))
            times.append(1e3 * (time.perf_counter() - began))
    return statistics.median(times)


def measured(repeats: int) -> str:
    """The section of the page."""
    fed = federation()
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    ).stdout.strip()
    today = datetime.now(UTC).date()
    lines = [
        "## Durability",
        "",
        f"Milliseconds per round, medians of {repeats} runs in turns ({today}, commit {commit}, "
        f"two cores, `make bench`). One flush of a file and its name took {flush_time():.2f} ms.",
        "",
        f"| run | {' | '.join(KINDS)} |",
        "|---|---|---|---|",
    ]
    for name, options in ROWS.items():
        times: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for _ in range(repeats):
            for kind, seconds in KINDS.items():
                times[kind].append(milliseconds(fed, seconds, options))
        cells = " | ".join(f"{statistics.median(times[kind]):.2f}" for kind in KINDS)
        lines.append(f"| {name} | {cells} |")
    lines += [
        "",
        "Runs on real nodes flush every round; simulations flush 0.2 seconds of rounds together.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    publish(__doc__, "durability", measured, repeats=3)
