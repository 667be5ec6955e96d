"""A transformer of two layers that predicts every next character of Shakespeare."""

import numpy as np
import torch
from torch import nn

import poise

VOCABULARY = 100


class Transformer(nn.Module):
    """Two causal layers; the outputs have the form (n, characters, T)."""

    def __init__(self, width: int = 32, length: int = 79) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.place = nn.Parameter(0.02 * torch.randn(length, width))
        layer = nn.TransformerEncoderLayer(width, 2, 64, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits of the character after each of the tokens."""
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        h = self.layers(self.embed(tokens) + self.place, mask=mask, is_causal=True)
        return self.head(h).transpose(1, 2)


def load(roles: int = 8, lines: int = 48) -> dict:
    """Return the first lines of the longest roles: characters, and the next characters."""
    plays = poise.federation("shakespeare", "by-key")
    longest = np.argsort(-plays.sizes)[:roles]
    text = np.concatenate([plays.client(i)[0][::40][:lines] for i in longest]).astype(
        int
    )
    keys = np.repeat([plays.names[i] for i in longest], lines)
    return {"data": (text[:, :-1], text[:, 1:]), "keys": keys, "vocabulary": VOCABULARY}


def main(roles: int = 8, lines: int = 48, rounds: int = 12) -> poise.Run:
    """Train one client per role and print the perplexity of its test lines."""
    fed = poise.federation(
        load, "by-key", options={"roles": roles, "lines": lines}, client_test_share=0.2
    )
    task = poise.Task(module=Transformer, metrics=["perplexity"])
    solver = poise.solvers.Adam(lr=0.005, epochs=1, batch_size=16)
    run = poise.train(fed, task, solver, rounds=rounds, metrics=["own_perplexity"])
    print("perplexity", run.metric("own_perplexity").round(1))
    return run


if __name__ == "__main__":
    main()
