"""What loss reports cost: rounds of `cnn`, 2 epochs, with weightings that ask for losses and one
that does not.

Run it with ``python benchmarks/reports_overhead.py``.
"""

from __future__ import annotations

import statistics
import time

import numpy as np

import poise

WEIGHTINGS = {
    "proportional": poise.weightings.Proportional(),
    "soft-max": poise.weightings.SoftMax(0.2),
    "exp": poise.weightings.Exp(0.2),
}


def overheads(repeats: int = 4) -> dict[str, float]:
    """What each weighting adds to a round, as a share of the round with proportional weights;
    rounds in turns.
    """
    rng = np.random.default_rng(0)
    x, y = (
        rng.integers(0, 256, (10 * 256, 1, 28, 28), dtype=np.uint8),
        rng.integers(0, 10, 10 * 256),
    )
    fed = poise.federation((x, y), partition=np.array_split(np.arange(len(x)), 10))
    solver = poise.solvers.SGD(lr=0.01, epochs=2, batch_size=64)
    times: dict[str, list[float]] = {name: [] for name in WEIGHTINGS}
    for _ in range(repeats):
        for name, weighting in WEIGHTINGS.items():
            stamps: list[float] = []
            poise.train(
                fed,
                poise.task("cnn"),
                solver,
                weighting=weighting,
                rounds=4,
                evaluate_every=10**9,
                callbacks=[
                    lambda record, stamps=stamps: stamps.append(time.perf_counter())
                ],
            )
            times[name] += np.diff(stamps)[:-1].tolist()
    plain = statistics.median(times["proportional"])
    return {
        name: statistics.median(values) / plain - 1 for name, values in times.items()
    }


if __name__ == "__main__":
    for name, share in overheads().items():
        print(f"{name}: {share:+.1%}")
