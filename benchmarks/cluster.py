"""Rounds on a Ray cluster against the same rounds in one process, with two workers each.

Run it with ``python benchmarks/cluster.py [--repeats 3] [--rounds 5] [--write docs/benchmarks.md]``
and the extra ``[ray]``. `cnn` on 28 x 28 images, 20 clients, 8 steps of batch 64; runs take turns,
medians over rounds. Start-up is told apart: of the cluster (once), and of the workers, which is in
a run's first round.
"""

from __future__ import annotations

import os
import statistics
import time
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch
from page import publish

import poise
from poise.backends import Local, Ray

CLIENTS, SAMPLES, STEPS, BATCH, WORKERS, GOAL = 20, 512, 8, 64, 2, 1.25


def federation() -> Any:
    """Random images: what is learned does not matter here."""
    rng = np.random.default_rng(0)
    count = CLIENTS * SAMPLES
    x = rng.integers(0, 256, (count, 1, 28, 28), dtype=np.uint8)
    return poise.federation(
        (x, rng.integers(0, 10, count)), np.array_split(np.arange(count), CLIENTS)
    )


def rounds_of(fed: Any, backend: Any, rounds: int) -> tuple[list[float], str]:
    """Seconds of each round of a run, and its digest."""
    seconds: list[float] = []
    run = poise.train(
        fed,
        poise.task("cnn"),
        poise.solvers.SGD(lr=0.01, steps=STEPS, batch_size=BATCH),
        rounds=rounds + 2,
        evaluate_every=10**9,
        backend=backend,
        callbacks=[lambda record: seconds.append(record.seconds)],
    )
    print(f"{type(backend).__name__}: {[round(s, 2) for s in seconds]} s", flush=True)
    return seconds, str(run.digest)


def measure(repeats: int, rounds: int) -> dict[str, Any]:
    """Seconds of rounds of either backend, first rounds apart; both must have done the same, to the
    bit.
    """
    import ray

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    fed = federation()
    began = time.perf_counter()
    ray.init(
        num_cpus=WORKERS,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
        namespace="poise",
    )
    found: dict[str, Any] = {
        "cluster": time.perf_counter() - began,
        "local": [],
        "ray": [],
        "first": [],
    }
    try:
        for _ in range(repeats):
            here, digest = rounds_of(fed, Local(workers=WORKERS), rounds)
            there, other = rounds_of(fed, Ray(workers=WORKERS), rounds)
            if digest != other:
                raise AssertionError("the two backends did not do the same work")
            found["local"] += here[
                1:-1
            ]  # the last round also measures the model, on both sides in this process
            found["ray"] += there[1:-1]
            found["first"].append(there[0])
    finally:
        ray.shutdown()
    return found


def text(found: dict[str, Any]) -> str:
    """What was measured, as a paragraph of the benchmark page."""
    import ray

    here, there, first = (
        statistics.median(found[name]) for name in ("local", "ray", "first")
    )
    return f"""## Ray

Measured on {datetime.now(UTC).date()} with `python benchmarks/cluster.py`: 2 cores, torch
{torch.__version__}, ray
{ray.__version__}; medians of {len(found["ray"])} rounds each, in turns. `cnn`, {CLIENTS} clients,
{STEPS} steps of
batch {BATCH}: a round takes {there:.2f} s with {WORKERS} Ray workers and {here:.2f} s with
{WORKERS} workers of `local`:
**{there / here:.2f} ×** (goal ≤ {GOAL}), with the same digest. Starting a cluster on this machine
took
{found["cluster"]:.1f} s; the first round, which waits for the workers to start, took {first:.1f} s.
"""


if __name__ == "__main__":
    publish(
        __doc__, "cluster", lambda **given: text(measure(**given)), repeats=3, rounds=5
    )
