"""The models of the works in plain PyTorch, for peers that do not know poise; weights have poise's
names.

As in poise, ReLU stands behind the pooling: the same function, and less work for everybody.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn


class NextCharacter(nn.Module):
    """Embedding 8, two LSTM layers of 100, dense layer on the last time step."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(100, 8)
        self.lstm = nn.LSTM(8, 100, 2, batch_first=True)
        self.head = nn.Linear(100, 100)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of the next character."""
        return self.head(self.lstm(self.embedding(x))[0][:, -1])


def build(name: str) -> nn.Module:
    """The module of this name, for 28 x 28 grey images or windows of text."""
    if name == "logistic":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    if name == "mlp":
        return nn.Sequential(
            nn.Flatten(), nn.Linear(784, 50), nn.ReLU(), nn.Linear(50, 10)
        )
    if name == "cnn":
        return nn.Sequential(
            nn.Conv2d(1, 32, 3),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(1600, 10),
        )
    return NextCharacter()


def with_weights(
    name: str, weights: dict[str, np.ndarray], variant: str = ""
) -> nn.Module:
    """The module with these weights."""
    module = laid_out(build(name), variant)
    module.load_state_dict(
        {key: torch.from_numpy(value.copy()) for key, value in weights.items()}
    )
    return module


def laid_out(module: nn.Module, variant: str) -> nn.Module:
    """The module with channels last in memory where the variant ends with ``c``: faster
    convolutions on many CPUs.
    """
    return (
        module.to(memory_format=torch.channels_last)
        if variant.endswith("c")
        else module
    )


def weights_of(module: nn.Module) -> dict[str, np.ndarray]:
    """A copy of the module's weights by name."""
    return {
        name: value.detach().cpu().numpy().copy()
        for name, value in module.state_dict().items()
    }
