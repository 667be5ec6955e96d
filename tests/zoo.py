"""A zoo of modules as users write them, each with inputs and a loss, for tests of all paths."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from poise.core.samples import Samples
from poise.testing import SampleFederation

VOCABULARY = 11
CLASSES = 3


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.second = nn.Linear(8, 8)
        self.last = nn.Linear(8, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.first(x))
        return self.last(h + torch.tanh(self.second(h)))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.last = nn.Linear(8, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.embedding(x)
        mixed, _ = self.attention(h, h, h, need_weights=False)
        return self.last(mixed.mean(1))


class Masked(nn.Module):
    """Causal attention whose mask of zeros and -inf is a buffer of the module."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.last = nn.Linear(8, CLASSES)
        mask = nn.Transformer.generate_square_subsequent_mask(5)
        self.register_buffer("mask", mask)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.embedding(x)
        mixed, _ = self.attention(h, h, h, attn_mask=self.mask, need_weights=False)
        return self.last(mixed[:, -1])


class Transformer(nn.Module):
    def __init__(
        self,
        width: int = 8,
        heads: int = 2,
        vocabulary: int = VOCABULARY,
        length: int = 5,
        classes: int = CLASSES,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(0.1 * torch.randn(length, width))
        layer = nn.TransformerEncoderLayer(
            width, heads, 2 * width, dropout=0.0, batch_first=True, activation="gelu"
        )
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.last = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.layers(self.embedding(x) + self.position).mean(1))


class Causal(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 8)
        self.mix = nn.Linear(8, 24)
        self.last = nn.Linear(8, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.mix(self.embedding(x)).chunk(3, dim=-1)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.last(mixed[:, -1])


class Bag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 4)
        self.last = nn.Linear(4, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.embedding(x).sum(1))


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 5)
        self.norm = nn.LayerNorm(5)
        self.last = nn.Linear(5, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(F.gelu(self.norm(self.first(x))))


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 4)
        self.cell = kind(4, 6, batch_first=True)
        self.last = nn.Linear(6, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.cell(self.embedding(x))[0][:, -1])


class Convolutional(nn.Module):
    def __init__(self, body: nn.Module, features: int) -> None:
        super().__init__()
        self.body = body
        self.last = nn.Linear(features, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.body(x).mean((2, 3)))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(4, 4, 3, padding=1)
        self.norm = nn.GroupNorm(2, 4)
        self.second = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.second(F.relu(self.norm(self.first(x)))))


class LeNet(nn.Module):
    """The network of the tutorials, whose ``view`` needs contiguous memory."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        x = x.view(-1, 16 * 5 * 5)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 4)
        self.head = nn.Linear(4, VOCABULARY, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.embedding(x).mean(1)))


class Frozen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Linear(6, 8).requires_grad_(False)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.backbone(x)))


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(6, 5)
        self.label = nn.Linear(5, CLASSES)
        self.size = nn.Linear(5, 1)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        h = torch.sin(self.body(x))
        return {"label": self.label(h), "size": self.size(h)}


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(4, 5)
        self.right = nn.Linear(2, 5)
        self.last = nn.Linear(5, CLASSES)

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.left(left)) * self.right(right))


class Chain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc2 = nn.Linear(5, CLASSES)
        self.fc1 = nn.Linear(48, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.view(x.size(0), -1)
        return self.fc2(F.relu(self.fc1(x)))


class Branches(nn.Module):
    """Control flow by values."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.layer(x)
        return h if h.sum().item() > 0 else 2 * h


class Counts(nn.Module):
    """A Python number that changes in every pass."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, CLASSES)
        self.passes = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.passes += 1
        return self.layer(x) / self.passes


class Halves(Samples):
    """Samples whose six numbers are two inputs, of four and of two."""

    def features(self, rows: torch.Tensor, out: Any = None) -> Any:
        x = super().features(rows)
        return x[..., :4], x[..., 4:]


def two_heads(outputs: Any, labels: torch.Tensor) -> torch.Tensor:
    wanted = F.cross_entropy(outputs["label"], labels, reduction="none")
    return wanted + 0.1 * outputs["size"][:, 0].square()


@dataclass(frozen=True)
class Animal:
    """A module, the samples it takes, its loss, and the path that the rule chooses."""

    make: Callable[[], nn.Module]
    path: str
    shape: tuple[int, ...] = (6,)
    tokens: bool = False
    classes: int = CLASSES
    loss: Any = "cross-entropy"
    halves: bool = False

    def federation(self, sizes: list[int]) -> SampleFederation:
        fed = SampleFederation.random(
            sizes,
            shape=self.shape,
            classes=self.classes,
            vocabulary=VOCABULARY if self.tokens else 0,
        )
        if not self.halves:
            return fed
        pool = Halves(fed.samples.raw, fed.samples.labels, classes=self.classes)
        return SampleFederation(pool, np.array(sizes), fed.held_out)

    def mean_loss(self, outputs: Any, labels: torch.Tensor) -> torch.Tensor:
        """The loss as a plain PyTorch loop writes it."""
        if callable(self.loss):
            return self.loss(outputs, labels).mean()
        return F.cross_entropy(outputs, labels)


def text(make: Callable[[], nn.Module], path: str, classes: int = CLASSES) -> Animal:
    return Animal(make, path, shape=(5,), tokens=True, classes=classes)


def image(make: Callable[[], nn.Module], path: str, channels: int = 4) -> Animal:
    return Animal(make, path, shape=(channels, 6, 6))


ZOO: dict[str, Animal] = {
    "residual": Animal(Residual, "functional"),
    "attention": text(Attention, "functional"),
    "transformer": text(Transformer, "functional"),
    "causal attention": text(Causal, "functional"),
    "embedding": text(Bag, "functional"),
    "causal mask": text(Masked, "functional"),
    "layer norm": Animal(Normed, "functional"),
    "gru": text(lambda: Recurrent(nn.GRU), "rows"),
    "lstm": text(lambda: Recurrent(nn.LSTM), "rows"),
    "convolution": image(lambda: Convolutional(nn.Conv2d(4, 6, 3), 6), "functional"),
    "depthwise": image(
        lambda: Convolutional(nn.Conv2d(4, 4, 3, groups=4), 4), "functional"
    ),
    "group norm": image(
        lambda: Convolutional(
            nn.Sequential(nn.Conv2d(4, 6, 3), nn.GroupNorm(3, 6), nn.SiLU()), 6
        ),
        "functional",
    ),
    "resnet block": image(lambda: Convolutional(Block(), 4), "functional"),
    "lenet": Animal(LeNet, "functional", shape=(3, 32, 32)),
    "tied weights": text(Tied, "functional", classes=VOCABULARY),
    "batch norm": Animal(
        lambda: nn.Sequential(
            nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, CLASSES)
        ),
        "rows",
    ),
    "dropout": Animal(
        lambda: nn.Sequential(nn.Linear(6, 9), nn.Dropout(0.4), nn.Linear(9, CLASSES)),
        "rows",
    ),
    "weight norm": Animal(
        lambda: nn.Sequential(
            nn.utils.parametrizations.weight_norm(nn.Linear(6, CLASSES))
        ),
        "rows",
    ),
    "orthogonal": Animal(
        lambda: nn.Sequential(
            nn.utils.parametrizations.orthogonal(
                nn.Linear(6, 6), orthogonal_map="cayley"
            ),
            nn.Linear(6, CLASSES),
        ),
        "functional",
    ),
    "lazy": Animal(
        lambda: nn.Sequential(nn.LazyLinear(5), nn.Tanh(), nn.LazyLinear(CLASSES)),
        "dense",
    ),
    "frozen backbone": Animal(Frozen, "functional"),
    "dict output": Animal(TwoHeads, "functional", loss=two_heads),
    "two inputs": Animal(TwoInputs, "functional", halves=True),
    "dense chain": Animal(Chain, "dense", shape=(3, 4, 4)),
    "branches": Animal(Branches, "rows"),
    "counts": Animal(Counts, "rows"),
    "mean loss": Animal(Residual, "functional", loss=F.cross_entropy),
}
