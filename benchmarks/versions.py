"""The same rounds by two versions of poise, in turns: a change must not make a row slower than 0.97
times.

python benchmarks/versions.py --base REV [--only NAME …] [--turns 7]

Each version runs in a process of its own, from its own checkout, and waits while the other one
works. A turn is a block of rounds of about a second. The table shows the medians and ``base /
now``: above 1 is faster than before.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent
SECONDS = 1.0  # of a turn, about


@dataclass(frozen=True)
class Row:
    """One round: clients x steps x batch of a model."""

    model: str
    shape: tuple[int, ...]
    clients: int
    steps: int
    batch: int
    clock: str = "synchronous"


IMAGE = (1, 28, 28)
ROWS = {
    "logistic-100x10x50": Row("logistic", IMAGE, 100, 10, 50),
    "logistic-500x5x10": Row("logistic", IMAGE, 500, 5, 10),
    "logistic-10x10x50": Row("logistic", IMAGE, 10, 10, 50),
    "mlp-100x10x50": Row("mlp", IMAGE, 100, 10, 50),
    "mlp-500x5x10": Row("mlp", IMAGE, 500, 5, 10),
    "cnn-10x8x64": Row("cnn", IMAGE, 10, 8, 64),
    "cnn-50x8x64": Row("cnn", IMAGE, 50, 8, 64),
    "lstm-10x5x64": Row("lstm", (80,), 10, 5, 64),
    "resnet20-4x4x64": Row("resnet20", (3, 32, 32), 4, 4, 64),
    "asynchronous-100x10x50": Row("logistic", IMAGE, 100, 10, 50, clock="asynchronous"),
}


def main() -> None:
    """Measure rows and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--base", help="revision to compare with")
    parser.add_argument(
        "--only", nargs="*", choices=ROWS, help="rows to measure; all by default"
    )
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--work", choices=ROWS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        serve(ROWS[given.work])
        return
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "base"
        subprocess.run(
            ["git", "worktree", "add", "--quiet", "--detach", str(base), given.base],
            cwd=HERE,
            check=True,
        )
        try:
            for name in given.only or ROWS:
                print(
                    compared(name, {"base": base, "now": HERE}, given.turns), flush=True
                )
        finally:
            subprocess.run(
                ["git", "worktree", "remove", "--force", str(base)],
                cwd=HERE,
                check=True,
            )


def compared(name: str, checkouts: dict[str, Path], turns: int) -> str:
    """One row of the table: medians in milliseconds, their ratio, and the quartiles of the ratios
    of turns.
    """
    workers = {which: Worker(name, path) for which, path in checkouts.items()}
    try:
        count = {which: worker.warm() for which, worker in workers.items()}
        rounds = min(count.values())
        times: dict[str, list[float]] = {which: [] for which in workers}
        for turn in range(turns):
            order = list(workers) if turn % 2 == 0 else list(workers)[::-1]
            for which in order:
                times[which].append(workers[which].seconds(rounds))
    finally:
        for worker in workers.values():
            worker.close()
    base, now = (statistics.median(times[which]) for which in ("base", "now"))
    ratios = [a / b for a, b in zip(times["base"], times["now"], strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4)
    ratios = f"{base / now:.3f} | {low:.3f}–{high:.3f}"
    return f"| {name} | {1e3 * base:.1f} | {1e3 * now:.1f} | {ratios} |"


class Worker:
    """A process that does rounds when it is asked."""

    def __init__(self, name: str, checkout: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
        command = [sys.executable, __file__, "--work", name]
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def seconds(self, rounds: int) -> float:
        """Seconds per round of so many rounds."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{rounds}\n")
        self.process.stdin.flush()
        return float(json.loads(self.process.stdout.readline()))

    def warm(self) -> int:
        """How many rounds take about `SECONDS`, after some to warm up."""
        self.seconds(3)
        return max(3, int(SECONDS / self.seconds(3)))

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.write("0\n")
        self.process.stdin.flush()
        self.process.wait()


def serve(row: Row) -> None:
    """One run whose rounds wait for the driver, with its ledger on disk as in any run."""
    import numpy as np

    import poise

    rng, size = np.random.default_rng(0), row.steps * row.batch
    text = row.model == "lstm"
    x = rng.integers(
        0, 100 if text else 256, (row.clients * size, *row.shape), dtype=np.uint8
    )
    y = rng.integers(0, 100 if text else 10, row.clients * size)
    parts = np.array_split(np.arange(len(x)), row.clients)
    fed = poise.federation(
        (x, y), partition=parts, **({"vocabulary": 100} if text else {})
    )
    clock = poise.clocks.Asynchronous("F80") if row.clock == "asynchronous" else None
    with tempfile.TemporaryDirectory() as folder:
        poise.train(
            fed,
            poise.task(row.model),
            poise.solvers.SGD(lr=0.01, steps=row.steps, batch_size=row.batch),
            clock=clock,
            rounds=10**9,
            evaluate_every=10**9,
            out=Path(folder) / "run",
            stop=pause(),
        ).close()


def pause() -> Callable[[], bool]:
    """Asked before each round: tells how long the last block took and waits for the next; true ends
    the run.
    """
    state: dict[str, Any] = {"left": 0, "began": 0.0, "rounds": 0, "over": False}

    def stop() -> bool:
        if state["over"]:
            return True
        if state["left"]:
            state["left"] -= 1
        if state["left"]:
            return False
        if state["rounds"]:
            print(
                json.dumps((time.perf_counter() - state["began"]) / state["rounds"]),
                flush=True,
            )
        state["rounds"] = state["left"] = int(sys.stdin.readline() or 0)
        state["over"] = state["rounds"] == 0
        state["began"] = time.perf_counter()
        return bool(state["over"])

    return stop


if __name__ == "__main__":
    main()
