"""What it costs to be able to forget: following sensitivities while training, and the time until
retraining starts.

Run it with ``python benchmarks/unlearning.py``. Following is measured on the updates of real
rounds: the time of the reading over the time of the round it belongs to, medians over rounds.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import poise
from poise.core.sensitivity import SensitivityProbe
from poise.solvers import SGD


def following(
    name: str, model: Any, clients: int, steps: int, batch: int, goal: float
) -> None:
    """The share of a round that reading sensitivities takes."""
    rng = np.random.default_rng(0)
    x = (rng.random((6000, 1, 28, 28)) * 255).astype(np.uint8)
    fed = poise.federation(
        (x, rng.integers(0, 10, 6000)), np.array_split(np.arange(6000), clients)
    )
    spent: list[float] = []
    read = SensitivityProbe.read

    def timed(self: SensitivityProbe, *given: Any) -> Any:
        began = time.perf_counter()
        found = read(self, *given)
        spent.append(time.perf_counter() - began)
        return found

    rounds: list[float] = []
    SensitivityProbe.read = timed  # type: ignore[method-assign]
    try:
        poise.train(
            fed,
            model,
            SGD(lr=0.05, steps=steps, batch_size=batch),
            rounds=12,
            evaluate_every=10**9,
            callbacks=[lambda record: rounds.append(record.seconds)],
        )
    finally:
        SensitivityProbe.read = read  # type: ignore[method-assign]
    share = statistics.median(a / b for a, b in zip(spent[2:], rounds[2:], strict=True))
    print(
        f"{name}: a round {1e3 * statistics.median(rounds[2:]):.0f} ms, of it {100 * share:.1f} % "
        f"(goal {goal} %)"
    )


def starting(rounds: int, width: int, clients: int) -> None:
    """Seconds from a request to the first round of retraining, on a run of many rounds of a large
    model.
    """
    rng = np.random.default_rng(0)
    x = rng.normal(size=(clients * 10, 784)).astype(np.float32)
    y = rng.integers(0, 10, clients * 10)
    fed = poise.federation((x, y), np.array_split(np.arange(len(x)), clients))
    task = poise.task("mlp", hidden=width)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        solver, sampler = (
            SGD(lr=0.01, steps=1, batch_size=10),
            poise.samplers.Uniform(10),
        )
        run = poise.train(
            fed,
            task,
            solver,
            sampler,
            rounds=rounds,
            evaluate_every=10**9,
            keep="unlearnable",
            out=out,
        )
        began = time.perf_counter()
        first: list[float] = []
        poise.unlearn(
            run,
            [3],
            target=0.0,
            min_rounds=1,
            max_rounds=1,
            heuristic=True,
            federation=fed,
            task=task,
            callbacks=[
                lambda record: first.append(time.perf_counter() - record.seconds)
            ],
        )
        print(
            f"{rounds} rounds of {len(run.model):,} parameters, {len(run.kept)} models kept: "
            "retraining starts "
            f"{first[0] - began:.2f} s after the request (goal 1 s)"
        )


def main() -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    following("mlp(50), 100 clients", poise.task("mlp", hidden=50), 100, 10, 50, 5)
    following("cnn, 20 clients", poise.task("cnn"), 20, 5, 20, 2)
    starting(1000, 1260, 100)


if __name__ == "__main__":
    main()
