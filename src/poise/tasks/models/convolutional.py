"""Convolutional models for small images."""

from __future__ import annotations

import copy

import torch
from torch import nn

from poise.core.errors import require
from poise.core.samples import Samples
from poise.tasks.layers import Dropout


def cnn(
    samples: Samples,
    outputs: int,
    width: int = 32,
    norm: bool = False,
    hidden: int = 0,
) -> nn.Module:
    """Build 3x3 conv ``width``, pool, 3x3 conv 2 ``width``, pool, dense.

    For width 32 and images of 28x28 the dense layer has 1600 inputs. With ``hidden``, a
    dense layer of so many units and ReLU come before it; 1600 units is one reading of
    the text of [Mansour 2022, §4.3]. ReLU follows the
    pooling, which leaves a quarter of the values; the two commute exactly, in value and
    in gradient. With ``norm``, batch norm follows both convolutions; FedBN keeps it
    with the client [Exp-α 2023, §4.3].

    Source: [Mansour 2022, §4.3], [Mansour 2023, §3.1].
    """
    whole = isinstance(width, int) and not isinstance(width, bool) and width > 0
    require(
        whole,
        f"cnn: width must be a whole number above 0, not {width!r}",
        where="width",
    )
    require(
        isinstance(norm, bool),
        f"cnn: norm must be true or false, not {norm!r}",
        where="norm",
    )
    require(
        isinstance(hidden, int) and not isinstance(hidden, bool) and hidden >= 0,
        f"cnn: hidden must be a whole number from 0 on, not {hidden!r}",
        where="hidden",
    )
    first = [nn.BatchNorm2d(width)] if norm else []
    second = [nn.BatchNorm2d(2 * width)] if norm else []
    body: list[nn.Module] = [
        nn.Conv2d(_channels(samples, "cnn", 10), width, 3),
        *first,
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3),
        *second,
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
    ]
    features = _width(body, samples)
    if hidden:
        body += [nn.Linear(features, hidden), nn.ReLU()]
        features = hidden
    return nn.Sequential(*body, nn.Linear(features, outputs))


def cnn_small(samples: Samples, outputs: int, dropout: float = 0.2) -> nn.Module:
    """Build three conv (32, 64, 64) with dropout after each, and two dense layers.

    As in the authors' networks, there is no activation after the third convolution.

    Source: [Fraboni 2023, §3.6, §5.5.1].
    """
    require(
        0 <= dropout < 1,
        f"cnn-small: dropout must be in [0, 1), not {dropout}",
        where="dropout",
    )
    drop = [Dropout(dropout)] if dropout else []
    body = [
        nn.Conv2d(_channels(samples, "cnn-small", 18), 32, 3),
        nn.MaxPool2d(2),
        nn.ReLU(),
        *drop,
        nn.Conv2d(32, 64, 3),
        nn.MaxPool2d(2),
        nn.ReLU(),
        *drop,
        nn.Conv2d(64, 64, 3),
        *drop,
        nn.Flatten(),
    ]
    return nn.Sequential(
        *body, nn.Linear(_width(body, samples), 64), nn.ReLU(), nn.Linear(64, outputs)
    )


def _channels(samples: Samples, name: str, smallest: int) -> int:
    shape = samples.shape
    require(
        len(shape) == 3 and not samples.tokens and min(shape[1:]) >= smallest,
        (
            f"{name} takes images (channels, height, width) from {smallest}x{smallest} on, not "
            f"samples of shape {shape}"
        ),
        "use 'mlp' or 'logistic'",
        where="model",
    )
    return shape[0]


def _width(body: list[nn.Module], samples: Samples) -> int:
    """Return the number of features after these layers, computed on a copy of them."""
    network = copy.deepcopy(nn.Sequential(*body)).eval()
    with torch.no_grad():
        return int(network(torch.zeros(1, *samples.shape)).shape[1])
