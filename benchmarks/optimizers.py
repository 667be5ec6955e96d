"""Cost of a local optimiser: rounds with Adam against rounds with SGD, in turns.

python benchmarks/optimizers.py [--repeats 5] [--solver adam]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from foundation import WORKS, federation_of

import poise
from poise.core.parts import build

WORK = next(work for work in WORKS if work.name == "mlp")
GOAL = 1.25
"""The most that a round with Adam may cost, in rounds with SGD."""


def seconds(federation: Any, solver: Any, rounds: int = 3) -> float:
    """Return the median wall-clock of rounds between the first and the last."""
    stamps: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        poise.train(
            federation,
            poise.task(WORK.model),
            solver=solver,
            rounds=rounds + 2,
            evaluate_every=10**9,
            metrics=(),
            out=Path(folder) / "run",
            callbacks=[lambda record: stamps.append(time.perf_counter())],
            keep="last",
        ).close()
    return statistics.median(np.diff(stamps)[:rounds].tolist())


def main() -> None:
    """Measure the solver and SGD in turns; print the medians and their ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--solver", default="adam")
    options = parser.parse_args()
    federation = federation_of(WORK)
    table = {"lr": 0.001, "steps": WORK.steps, "batch_size": WORK.batch}
    plain = poise.solvers.SGD(**table)
    solver = build("solver", {"name": options.solver, **table})
    times: dict[str, list[float]] = {options.solver: [], "sgd": []}
    for _ in range(options.repeats):
        times["sgd"].append(seconds(federation, plain))
        times[options.solver].append(seconds(federation, solver))
    pairs = zip(times[options.solver], times["sgd"], strict=True)
    ratio = statistics.median(ours / theirs for ours, theirs in pairs)
    for name, values in times.items():
        print(f"{name}: {statistics.median(values):.3f} s per round")
    print(f"{WORK.label}: {options.solver} costs {ratio:.2f} x SGD (goal {GOAL} x)")


if __name__ == "__main__":
    main()
