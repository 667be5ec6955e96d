"""The model, and who has which digits."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

HELD_OUT = 360  # of 1,797 samples; they stay with the server


def model() -> nn.Module:
    """64 pixels, 32 hidden units, 10 classes; the same initial weights everywhere."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def held_out() -> tuple[torch.Tensor, torch.Tensor]:
    """The server's test data."""
    x, y = _shuffled()
    return x[:HELD_OUT], y[:HELD_OUT]


def partition(number: int, of: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The samples of one client: every class is dealt by its own Dirichlet(0.5) draw, so that
    clients differ.
    """
    x, y = (values[HELD_OUT:] for values in _shuffled())
    draw = np.random.default_rng(0)
    mine = []
    for label in range(10):
        rows = torch.nonzero(y == label).flatten()
        ends = np.concatenate(
            [[0], np.round(np.cumsum(draw.dirichlet(np.full(of, 0.5))) * len(rows))]
        ).astype(int)
        mine.append(rows[ends[number] : ends[number + 1]])
    chosen = torch.cat(mine)
    return x[chosen], y[chosen]


def _shuffled() -> tuple[torch.Tensor, torch.Tensor]:
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(1).permutation(len(y))
    return torch.tensor(x[order] / 16, dtype=torch.float32), torch.tensor(
        y[order], dtype=torch.int64
    )
