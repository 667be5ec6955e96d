"""Runs of every named model, and of modules of one's own, for tests of model files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import poise
from poise.results import Run

SGD = poise.solvers.SGD(lr=0.1, steps=2, batch_size=4)
CLASSES = 3
TOKENS = 11


class Normed(nn.Module):
    """Batch norm, dropout, and a branch: evaluation differs from training."""

    def __init__(self, hidden: int = 8) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, hidden), nn.BatchNorm1d(hidden))
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(hidden, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.body(x))
        return self.head(self.drop(h) + h.mean(1, keepdim=True))


class TwoInputs(nn.Module):
    """An image and numbers, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)
        self.head = nn.Linear(2 * 4 + 3, CLASSES)

    def forward(self, image: torch.Tensor, age: torch.Tensor) -> torch.Tensor:
        return self.head(torch.cat([self.conv(image).flatten(1), age], dim=1))


class FrozenBody(nn.Module):
    """A frozen first layer, which does not travel."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.body = nn.Linear(6, 5).requires_grad_(False)
        self.head = nn.Linear(5, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.body(x)))


def flat() -> Any:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 6)).astype(np.float32)
    return poise.federation((x, np.arange(60) % CLASSES), clients=3, test_share=0.2)


def images(size: int, channels: int = 1) -> Any:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (24, channels, size, size)).astype(np.uint8)
    return poise.federation((x, np.arange(24) % CLASSES), clients=3)


def texts() -> Any:
    rng = np.random.default_rng(0)
    x = rng.integers(0, TOKENS, (30, 7))
    return poise.federation((x, np.arange(30) % TOKENS), clients=3, vocabulary=TOKENS)


def pairs() -> Any:
    rng = np.random.default_rng(0)
    x = {
        "image": rng.normal(size=(30, 1, 4, 4)).astype(np.float32),
        "age": rng.normal(size=(30, 3)).astype(np.float32),
    }
    return poise.federation((x, np.arange(30) % CLASSES), clients=3)


@dataclass(frozen=True)
class Case:
    """A federation and a task."""

    federation: Callable[[], Any]
    task: Callable[[], Any]
    solver: Any = SGD

    def train(self, out: Path | None = None, **options: Any) -> Run:
        fed = self.federation()
        given = {"rounds": 2, **options}
        return poise.train(fed, self.task(), self.solver, out=out, **given)


NAMED = {
    "logistic": Case(flat, lambda: poise.task("logistic")),
    "mlp": Case(flat, lambda: poise.task("mlp", hidden=[8, 4], norm=True)),
    "mlp-float64": Case(flat, lambda: poise.task("mlp", hidden=8, dtype="float64")),
    "cnn": Case(lambda: images(14), lambda: poise.task("cnn", width=4, norm=True)),
    "cnn-small": Case(lambda: images(28), lambda: poise.task("cnn-small")),
    "resnet20": Case(lambda: images(8, 3), lambda: poise.task("resnet20", width=4)),
    "lstm": Case(texts, lambda: poise.task("lstm", hidden=6)),
    "ridge": Case(flat, lambda: poise.ridge("random", count=12), poise.solvers.Sums()),
}
"""Every named model, small; the file of a run is enough to make its module."""

OWN = {
    "normed": Case(
        flat, lambda: poise.Task(module=Normed, loss="cross-entropy", options={})
    ),
    "two-inputs": Case(pairs, lambda: poise.Task(module=TwoInputs)),
    "frozen": Case(flat, lambda: poise.Task(module=FrozenBody)),
}
"""Modules of one's own."""
