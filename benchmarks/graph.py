"""The similarity graph: messages against an epoch of training, a large graph, and one changed
client.

Run it with ``python benchmarks/graph.py``. Random images stand for MNIST; ratios are of medians, in
turns.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import poise
from poise.graph import SimilarityGraph, messages


def seconds(call: Callable[[], Any]) -> float:
    """How long one call takes."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def main() -> None:
    """Measure and print."""
    rng = np.random.default_rng(0)
    x = (rng.random((60_000, 1, 28, 28)) * rng.random((1, 1, 28, 28)) * 255).astype(
        np.uint8
    )
    fed = poise.federation(
        (x, rng.integers(0, 10, 60_000)), np.array_split(np.arange(60_000), 100)
    )
    solver = poise.solvers.SGD(lr=0.01, epochs=1, batch_size=50)

    def epoch() -> None:
        poise.train(
            fed, poise.task("mlp", hidden=128), solver, rounds=1, evaluate_every=10**9
        )

    epoch()
    taken = [(seconds(lambda: messages(fed)), seconds(epoch)) for _ in range(3)]
    said, trained = (statistics.median(column) for column in zip(*taken, strict=True))
    print(
        f"messages of 100 clients x 600: {said:.2f} s, {said / trained:.2f} x an mlp(128) epoch "
        "(goal 2)"
    )

    rows = rng.random((2000, 784))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)

    def whole() -> SimilarityGraph:
        graph = SimilarityGraph(rows)
        assert graph.spectrum[1] > 0
        assert graph.homogeneity > 0
        return graph

    print(f"graph of 2,000 clients with its spectrum: {seconds(whole):.2f} s (goal 5)")
    for clients in (500, 1000, 2000):
        graph = SimilarityGraph(rows[:clients])
        assert graph.homogeneity > 0
        changed = statistics.median(
            seconds(lambda g=graph: g.homogeneity_with(3, rows[4])) for _ in range(9)
        )
        print(
            f"homogeneity after one of {clients} clients changed: {1e3 * changed:.2f} ms"
        )


if __name__ == "__main__":
    main()
