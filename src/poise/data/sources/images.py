"""Pools of images: stored as integers, normalised by scale and shift when read."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from poise.core.errors import InvalidOption, require, suggest
from poise.core.samples import Samples
from poise.core.types import Ints

NORMALISATIONS = ("unit", "symmetric", "standard", "centred", "raw", "inverted")

PUBLIC_MEAN = "mean image of the held-out pool"
"""The name of the image that ``centred`` subtracts, for reports and certificates."""


def public_mean(normalize: object) -> str:
    """Name the public image that a normalisation subtracts; empty if it subtracts none.

    The server can compute this image without any sample of a client. ``normalize`` is
    the option of that name in the table [data].

    >>> public_mean("centred"), public_mean("unit")
    ('mean image of the held-out pool', '')
    """
    return PUBLIC_MEAN if normalize == "centred" else ""


def image_pools(
    train: tuple[NDArray[Any], Ints],
    test: tuple[NDArray[Any], Ints],
    top: int,
    normalize: str,
) -> tuple[Samples, Samples]:
    """Return training and test pools of images (n, C, H, W) of grey values 0 … ``top``.

    ``unit``: x/top. ``symmetric``: 2x/top - 1 ([Fraboni 2023, §3.6] for CIFAR-10).
    ``standard``: (x - mean)/std with the mean and standard deviation of each channel
    over the whole training set ([Fraboni 2023, §4.6] for MNIST). ``centred``: x/top
    minus the mean image of all test images, pixel by pixel. Shorter inputs need less
    noise: noise of size sigma on a linear model changes its outputs by sigma |x|.
    ``raw``: x. ``inverted``: 1 - x/top, dark on white.

    >>> x, y = np.full((2, 1, 3, 3), 255, np.uint8), np.zeros(2, np.int64)
    >>> float(image_pools((x, y), (x, y), 255, "unit")[0].features(torch.tensor([0])).max())
    1.0
    """
    scale, shift = _affine(train[0], test[0], top=top, normalize=normalize)

    def pool(x: NDArray[Any], y: Ints) -> Samples:
        raw = torch.from_numpy(np.array(x, order="C"))
        return Samples(
            raw, torch.from_numpy(y.astype(np.int64)), scale, shift, classes=10
        )

    return pool(*train), pool(*test)


def _affine(
    x: NDArray[Any], test: NDArray[Any], top: int, normalize: str
) -> tuple[torch.Tensor | float, torch.Tensor | float]:
    if normalize == "unit":
        return 1.0 / top, 0.0
    if normalize == "symmetric":
        return 2.0 / top, -1.0
    if normalize == "raw":
        return 1.0, 0.0
    if normalize == "inverted":
        return -1.0 / top, 1.0
    if normalize == "centred":
        return 1.0 / top, _minus_mean(test, top)
    if normalize != "standard":
        raise InvalidOption(
            f"unknown normalize {normalize!r}",
            suggest(str(normalize), NORMALISATIONS),
            where=("normalize",),
        )
    mean, deviation = _moments(x)
    if len(mean) == 1:
        return float(1 / deviation[0]), float(-mean[0] / deviation[0])
    column = (len(mean), 1, 1)
    scale = torch.from_numpy(1 / deviation).float().view(column)
    shift = torch.from_numpy(-mean / deviation).float().view(column)
    return scale, shift


def _minus_mean(x: NDArray[Any], top: int) -> torch.Tensor:
    """Return minus the mean image in units of ``top``, (C, H, W); integer sums are exact."""
    require(
        len(x) > 0,
        "normalize = 'centred' subtracts the mean image of the held-out pool, which is empty",
        "choose test_share above 0, or normalize = 'unit'",
        where="normalize",
    )
    total = x.sum(axis=0, dtype=np.int64)
    return torch.from_numpy(-total / (len(x) * top)).float()


def _moments(
    x: NDArray[Any], chunk: int = 4096
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and standard deviation of each channel, without a float copy."""
    total = np.zeros(x.shape[1])
    squares = np.zeros(x.shape[1])
    for start in range(0, len(x), chunk):
        part = x[start : start + chunk].astype(np.float32)
        total += part.sum(axis=(0, 2, 3), dtype=np.float64)
        squares += np.square(part).sum(axis=(0, 2, 3), dtype=np.float64)
    count = x.size / x.shape[1]
    mean = total / count
    return mean, np.sqrt(squares / count - mean**2)
