"""Recurrent models for text."""

from __future__ import annotations

import torch
from torch import nn

from poise.core.errors import require
from poise.core.samples import Samples


class NextCharacter(nn.Module):
    """Embedding, stacked LSTM, dense layer on the last time step."""

    def __init__(
        self, vocabulary: int, outputs: int, embedding: int, hidden: int, layers: int
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers, batch_first=True)
        self.head = nn.Linear(hidden, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scores of the next character, (n, outputs), from tokens (n, window)."""
        states, _ = self.lstm(self.embedding(x))
        scores: torch.Tensor = self.head(states[:, -1])
        return scores


def lstm(
    samples: Samples,
    outputs: int,
    embedding: int = 8,
    hidden: int = 100,
    layers: int = 2,
) -> nn.Module:
    """Build a character model: embedding 8, two LSTM layers of 100 [Fraboni 2023, §2.4]."""
    require(
        samples.tokens,
        "lstm takes text (token numbers), not quantities",
        "use source 'shakespeare'",
        where="model",
    )
    for name, value in (
        ("embedding", embedding),
        ("hidden", hidden),
        ("layers", layers),
    ):
        require(
            isinstance(value, int) and value > 0,
            f"lstm: {name} must be above 0, not {value}",
            where=name,
        )
    return NextCharacter(samples.vocabulary, outputs, embedding, hidden, layers)
