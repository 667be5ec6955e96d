"""`usps`: handwritten digits of the US postal service."""

from __future__ import annotations

import bz2
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poise.core.errors import DataError
from poise.core.samples import Samples
from poise.core.types import Ints
from poise.data.catalogue import USPS_INTEGERS, USPS_LIBSVM
from poise.data.files import check, check_labels, home, locate, read_npz
from poise.data.sources.images import image_pools, public_mean
from poise.data.sources.source import Source

_SIZES = {"train": 7291, "test": 2007}


def usps(normalize: str = "unit") -> Source:
    """USPS, 7,291 + 2,007 digits of 16x16, with high values for ink as in MNIST.

    The test set is harder than the training set. The published grey values have three
    decimals in [-1, 1]; poise stores them without loss as the integers
    ``1000 (v + 1)``, 0 … 2000.

    Args:
        normalize: ``unit`` (x/2000), ``symmetric`` (the published values), ``standard``,
            ``centred`` (x/2000 minus the mean test image), ``inverted`` (1 - x/2000) or
            ``raw`` (0 … 2000).

    >>> usps().train.shape  # doctest: +NEEDS_DATA
    (1, 16, 16)

    Source: [LeCun 1989]; a second domain for MNIST's ten digits, [Exp-α 2023, §4.3].
    """
    compact = locate([USPS_INTEGERS])
    published = None if compact else locate(USPS_LIBSVM)
    if published:
        train, test = _from_libsvm(published, normalize)
    else:
        train, test = _from_integers(compact or home("usps", USPS_LIBSVM), normalize)
    return Source(
        "usps",
        train,
        test,
        notes="USPS, 16x16",
        public_mean=public_mean(normalize),
    )


@lru_cache(maxsize=2)
def _from_integers(folder: Path, normalize: str) -> tuple[Samples, Samples]:
    path = check(folder, USPS_INTEGERS)
    arrays: dict[str, tuple[tuple[int, ...], str]] = {}
    for part, count in _SIZES.items():
        arrays[f"x_{part}"] = ((count, 16, 16), "u2")
        arrays[f"y_{part}"] = ((count,), "u1")
    held = read_npz(path, arrays)

    def images(part: str) -> tuple[NDArray[Any], Ints]:
        labels = check_labels(path, held[f"y_{part}"], classes=10)
        return held[f"x_{part}"].astype(np.int16)[:, None], labels

    return image_pools(images("train"), images("test"), top=2000, normalize=normalize)


@lru_cache(maxsize=2)
def _from_libsvm(folder: Path, normalize: str) -> tuple[Samples, Samples]:
    train_file, test_file = USPS_LIBSVM
    train = read_libsvm(check(folder, train_file), _SIZES["train"])
    test = read_libsvm(check(folder, test_file), _SIZES["test"])
    return image_pools(train, test, top=2000, normalize=normalize)


def read_libsvm(path: Path, rows: int) -> tuple[NDArray[Any], Ints]:
    """Return integer images (rows, 1, 16, 16) and digits, from ``label 1:v … 256:v``.

    LIBSVM's label is digit + 1; a missing column holds 0.
    """
    try:
        lines = bz2.decompress(path.read_bytes()).decode("ascii").splitlines()
    except (OSError, ValueError, EOFError) as error:
        raise DataError(
            f"{path}: not a complete bzip2 file: {error}", "fetch it again"
        ) from error
    if len(lines) != rows:
        raise DataError(f"{path}: {len(lines)} rows, expected {rows}")
    images = np.zeros((rows, 256))
    labels = np.zeros(rows, dtype=np.int64)
    for row, line in enumerate(lines):
        label, *cells = line.split()
        labels[row] = int(label) - 1
        pairs = [cell.split(":") for cell in cells]
        images[row, [int(column) - 1 for column, _ in pairs]] = [
            float(value) for _, value in pairs
        ]
    grey = np.rint(1000 * (images + 1)).astype(np.int16)
    return grey.reshape(rows, 1, 16, 16), check_labels(path, labels, 10)
