"""Speed of modules with a forward of their own against a plain PyTorch loop, in turns.

python benchmarks/kernels.py [--repeats 5] [--write docs/benchmarks.md]
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from baselines import plain_loop
from page import publish
from torch import nn

import poise

WORDS = 50


class Transformer(nn.Module):
    """Two encoder layers of width 32 on 16 tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 32)
        self.position = nn.Parameter(0.1 * torch.randn(16, 32))
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.last = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, 16) tokens -> (n, 10)."""
        hidden = self.layers(self.embedding(x) + self.position)
        scores: torch.Tensor = self.last(hidden.mean(1))
        return scores


class Residual(nn.Module):
    """A dense network with two skip connections."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 64)
        self.second = nn.Linear(64, 64)
        self.third = nn.Linear(64, 64)
        self.last = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, 64) -> (n, 10)."""
        h = torch.relu(self.first(x))
        h = h + torch.relu(self.second(h))
        h = h + torch.relu(self.third(h))
        scores: torch.Tensor = self.last(h)
        return scores


class Convolutional(nn.Module):
    """Two convolutions of 8 and 16 channels."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 8, 3)
        self.second = nn.Conv2d(8, 16, 3)
        self.last = nn.Linear(16 * 5 * 5, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, 1, 28, 28) -> (n, 10)."""
        x = F.max_pool2d(F.relu(self.first(x)), 2)
        x = F.max_pool2d(F.relu(self.second(x)), 2)
        scores: torch.Tensor = self.last(x.flatten(1))
        return scores


class Chain(nn.Module):
    """A dense chain with a forward of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(784, 50)
        self.last = nn.Linear(50, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, 1, 28, 28) -> (n, 10)."""
        scores: torch.Tensor = self.last(F.relu(self.first(x.view(x.size(0), -1))))
        return scores


class Tutorial(nn.Module):
    """The convolutional network of PyTorch's and Flower's CIFAR-10 tutorials."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, 3, 32, 32) -> (n, 10)."""
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        x = x.view(-1, 16 * 5 * 5)
        x = F.relu(self.fc1(x))
        scores: torch.Tensor = self.fc3(F.relu(self.fc2(x)))
        return scores


@dataclass(frozen=True)
class Work:
    """One round: clients x steps x batch, and how much faster than the loop it must be."""

    name: str
    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    steps: int
    batch: int
    goal: float
    clients: int = 100
    adam: bool = False

    @property
    def solver(self) -> Any:
        """The local solver."""
        solver = poise.solvers.Adam if self.adam else poise.solvers.SGD
        return solver(lr=0.01, steps=self.steps, batch_size=self.batch)

    def loop(self, model: nn.Module, clients: Any) -> None:
        """The same round as a plain loop."""
        optimizer = torch.optim.Adam if self.adam else torch.optim.SGD
        plain_loop(model, clients, self.steps, self.batch, 0.01, optimizer)

    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """Random samples and labels; their values do not matter for speed."""
        rng = np.random.default_rng(0)
        count = self.clients * self.steps * self.batch
        if self.make is Transformer:
            x = rng.integers(0, WORDS, (count, *self.shape), dtype=np.uint8)
        else:
            x = rng.standard_normal((count, *self.shape), dtype=np.float32)
        return x, rng.integers(0, 10, count)


WORKS = [
    Work("transformer", Transformer, (16,), 5, 2, 5.0),
    Work("transformer-8", Transformer, (16,), 5, 8, 1.0),
    Work("residual", Residual, (64,), 10, 10, 5.0),
    Work("cnn-8-16", Convolutional, (1, 28, 28), 5, 8, 1.0),
    Work("chain", Chain, (1, 28, 28), 10, 10, 1.0),
    Work("tutorial", Tutorial, (3, 32, 32), 31, 32, 1.4, clients=10, adam=True),
]


WARM_UP = 3
"""Rounds before those that are measured: graphs are recorded, memory is asked for."""


def rounds_of(work: Work, path: Any, rounds: int) -> list[float]:
    """Seconds of rounds after the first ones, written to disk."""
    x, y = work.data()
    parts = np.array_split(np.arange(len(x)), work.clients)
    tokens = {"vocabulary": WORDS} if work.make is Transformer else {}
    federation = poise.federation((x, y), partition=parts, **tokens)
    stamps: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        poise.train(
            federation,
            poise.Task(module=work.make, path=path),
            work.solver,
            rounds=WARM_UP + rounds + 1,
            evaluate_every=10**9,
            metrics=(),
            out=Path(folder) / "run",
            callbacks=[lambda record: stamps.append(time.perf_counter())],
            keep="last",
        ).close()
    return np.diff(stamps)[WARM_UP - 1 : WARM_UP - 1 + rounds].tolist()


def measure(work: Work, repeats: int) -> str:
    """Return poise, the row path and the plain loop in turns, medians, as one line."""
    x, y = work.data()
    inputs = torch.from_numpy(x)
    inputs = inputs.long() if inputs.dtype == torch.uint8 else inputs
    labels = torch.from_numpy(y)
    data = zip(inputs.chunk(work.clients), labels.chunk(work.clients), strict=True)
    clients = list(data)
    model = work.make()
    threads = torch.get_num_threads()
    plain, single, ours, rows = [], [], [], []
    for _ in range(repeats):
        for count, times in ((threads, plain), (1, single)):
            torch.set_num_threads(count)
            began = time.perf_counter()
            work.loop(model, clients)
            times.append(time.perf_counter() - began)
        torch.set_num_threads(threads)
        ours += rounds_of(work, None, 2)
        rows += rounds_of(work, "rows", 1)
    loop, one, mine, alone = map(statistics.median, (plain, single, ours, rows))
    size = f"{work.clients} × {work.steps} × {work.batch}"
    return (
        f"| {work.name}: {size} | {loop:.3f} s | {one:.3f} s | {alone:.3f} s "
        f"| {mine:.3f} s "
        f"| **{loop / mine:.1f}×** | ≥ {work.goal}× |"
    )


def measured(repeats: int) -> str:
    """The section of the page."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    ).stdout.strip()
    lines = [
        "## Modules of your own",
        "",
        f"One round of clients × steps × batch, medians of {repeats} runs in turns "
        f"({datetime.now(UTC).date()}, commit {commit}, two cores, `make bench`). The plain "
        "loop copies the model and trains one client after the other, with PyTorch's "
        f"default threads. poise's first {WARM_UP} rounds are not measured; the loop runs warm, "
        "too. `tutorial` trains with Adam, the others with SGD.",
        "",
        "| one round | plain loop | (1 thread) | rows | poise | ratio | goal |",
        "|---|---|---|---|---|---|---|",
    ]
    for work in WORKS:
        lines.append(measure(work, repeats))
        print(lines[-1], flush=True)
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    publish(__doc__, "kernels", measured, repeats=5)
