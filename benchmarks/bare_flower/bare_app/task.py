"""The model of both sides."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

HIDDEN, EPOCHS, BATCH, LR = 50, 5, 32, 0.1


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 10))


def samples(file: str | Path) -> tuple[torch.Tensor, torch.Tensor]:
    with np.load(file, allow_pickle=False) as found:
        return torch.from_numpy(found["x"]), torch.from_numpy(found["y"])
