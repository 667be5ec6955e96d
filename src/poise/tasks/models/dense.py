"""Dense models: logistic regression and multi-layer perceptrons."""

from __future__ import annotations

from math import prod

from torch import nn

from poise.core.errors import require
from poise.core.samples import Samples


def logistic(samples: Samples, outputs: int) -> nn.Module:
    """Build multinomial logistic regression with bias; weight decay makes it strongly convex.

    Source: [Fraboni 2023, §5.5.1].
    """
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(samples.shape), outputs))


def mlp(
    samples: Samples, outputs: int, hidden: int | list[int] = 50, norm: bool = False
) -> nn.Module:
    """Build a fully connected ReLU network with these hidden layers.

    ``hidden=50`` is [Fraboni 2023, §3.6], 128 is [Buttaci 2024, §4.5.3]. With ``norm``,
    batch norm follows every hidden layer; FedBN keeps it with the client [Exp-α 2023,
    §4.3].
    """
    widths = list(hidden) if isinstance(hidden, list | tuple) else [hidden]
    whole = all(
        isinstance(w, int) and not isinstance(w, bool) and w > 0 for w in widths
    )
    require(
        bool(widths) and whole,
        f"mlp: hidden must be whole numbers above 0, not {hidden!r}",
        where="hidden",
    )
    require(
        isinstance(norm, bool),
        f"mlp: norm must be true or false, not {norm!r}",
        where="norm",
    )
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in zip([prod(samples.shape), *widths], widths, strict=False):
        layers.append(nn.Linear(before, after))
        if norm:
            layers.append(nn.BatchNorm1d(after))
        layers.append(nn.ReLU())
    return nn.Sequential(*layers, nn.Linear(widths[-1], outputs))
