"""Convolutional models for small images."""

from __future__ import annotations

import copy

import torch
from torch import nn

from poise.core.errors import require
from poise.core.samples import Samples
from poise.tasks.layers import Dropout


def cnn(samples: Samples, outputs: int, width: int = 32, norm: bool = False) -> nn.Module:
    """3x3 conv ``width``, pool, 3x3 conv 2 ``width``, pool, dense (A section 4.3, D section 3.1).

    With 32 and images of 28x28 the dense layer has 1600 inputs. ReLU stands behind the pooling,
    where a quarter of the values is left: the two commute exactly, in value and in gradient. With
    ``norm``, batch norm follows both
    convolutions: what FedBN keeps with the client (B section 4.3).
    """
    whole = isinstance(width, int) and not isinstance(width, bool) and width > 0
    require(whole, f"cnn: width must be a whole number above 0, not {width!r}", where="width")
    require(isinstance(norm, bool), f"cnn: norm must be true or false, not {norm!r}", where="norm")
    first, second = ([nn.BatchNorm2d(channels)] if norm else [] for channels in (width, 2 * width))
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
    return nn.Sequential(*body, nn.Linear(_width(body, samples), outputs))


def cnn_small(samples: Samples, outputs: int, dropout: float = 0.2) -> nn.Module:
    """Three conv (32, 64, 64), two dense layers, dropout after each conv (E sections 3.6, 5.5.1).

    As in the authors' networks there is no activation after the third convolution.
    """
    require(
        0 <= dropout < 1, f"cnn-small: dropout must be in [0, 1), not {dropout}", where="dropout"
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
    """Features behind these layers, found on a copy: the layers themselves stay as they are."""
    with torch.no_grad():
        return int(
            copy.deepcopy(nn.Sequential(*body)).eval()(torch.zeros(1, *samples.shape)).shape[1]
        )
