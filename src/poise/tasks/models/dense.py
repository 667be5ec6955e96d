"""Dense models: logistic regression and multi-layer perceptrons."""

from __future__ import annotations

from math import prod

from torch import nn

from poise.core.errors import require
from poise.core.samples import Samples


def logistic(samples: Samples, outputs: int) -> nn.Module:
    """Multinomial logistic regression with bias; with weight decay it is strongly convex (E section
    5.5.1).
    """
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(samples.shape), outputs))


def mlp(
    samples: Samples, outputs: int, hidden: int | list[int] = 50, norm: bool = False
) -> nn.Module:
    """Fully connected ReLU network; ``hidden=50`` is E section 3.6, 128 is C section 4.5.3.

    With ``norm``, batch norm follows every hidden layer: what FedBN keeps with the client (B
    section 4.3).
    """
    widths = list(hidden) if isinstance(hidden, list | tuple) else [hidden]
    whole = all(isinstance(w, int) and not isinstance(w, bool) and w > 0 for w in widths)
    require(
        bool(widths) and whole,
        f"mlp: hidden must be whole numbers above 0, not {hidden!r}",
        where="hidden",
    )
    require(isinstance(norm, bool), f"mlp: norm must be true or false, not {norm!r}", where="norm")
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in zip([prod(samples.shape), *widths], widths, strict=False):
        layers += [nn.Linear(before, after), *([nn.BatchNorm1d(after)] if norm else []), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], outputs))
