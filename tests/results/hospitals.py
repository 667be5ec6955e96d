"""A small federation of clients with names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import poise

NAMES = ("cleveland", "budapest", "zurich", "long beach")
SOLVER = poise.solvers.SGD(lr=0.05, steps=2, batch_size=8)


def hospitals() -> Any:
    """Four hospitals of different sizes, with test samples of their own."""
    generator = np.random.default_rng(7)
    data = {}
    for k, name in enumerate(NAMES):
        rows = 20 + 10 * k
        x = generator.normal(size=(rows, 5)).astype(np.float32)
        data[name] = (x, (x[:, 0] + 0.1 * k > 0).astype(np.int64))
    return poise.federation(data, client_test_share=0.25)


def trained(out: Path | None = None, rounds: int = 4, **options: Any) -> poise.Run:
    """A run on the hospitals."""
    return poise.train(
        hospitals(),
        poise.task("logistic"),
        SOLVER,
        rounds=rounds,
        out=out,
        metrics=["client_test_accuracy"],
        **options,
    )
