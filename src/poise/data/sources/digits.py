"""`digits`: 1,797 images that ship with scikit-learn."""

from __future__ import annotations

import gzip
from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from poise.core.rng import generator
from poise.core.types import Ints
from poise.data.sources.images import image_pools, public_mean
from poise.data.sources.source import Source
from poise.data.splits import held_out, share_of


@lru_cache(maxsize=4)
def digits(normalize: str = "unit", test_share: float = 0.2) -> Source:
    """The 8x8 digits of scikit-learn, which need no file and no network.

    Grey values are 0 … 16. The test samples are ``test_share`` of every class, and
    always the same for a given share.

    Args:
        normalize: ``unit`` (x/16), ``symmetric`` (x/8 - 1), ``standard`` (per
            training set), ``centred`` (x/16 minus the mean test image), ``inverted``
            (1 - x/16) or ``raw`` (0 … 16).
        test_share: the held-out share of each class.

    >>> source = digits()
    >>> len(source.train), len(source.test), source.train.shape
    (1438, 359, (1, 8, 8))
    """
    rows = _rows()
    images = rows[:, :-1].astype(np.uint8).reshape(-1, 1, 8, 8)
    labels = rows[:, -1]
    test = held_out(
        labels, share_of(test_share, "test_share"), generator(0, "digits/test")
    )
    train_pool, test_pool = image_pools(
        (images[~test], labels[~test]),
        (images[test], labels[test]),
        top=16,
        normalize=normalize,
    )
    source = Source(
        "digits",
        train_pool,
        notes="scikit-learn digits",
        public_mean=public_mean(normalize),
    )
    if test.any():
        return replace(source, test=test_pool)
    return source


def _rows() -> Ints:
    """The grey values and the class of each image, (1797, 65).

    The file is read without scikit-learn, whose import takes longer than a small run.
    """
    found = find_spec("sklearn")
    if found is not None and found.origin is not None:
        file = Path(found.origin).parent / "datasets" / "data" / "digits.csv.gz"
        if file.is_file():
            text = gzip.decompress(file.read_bytes()).decode("ascii")
            numbers = text.replace("\n", ",").rstrip(",").split(",")
            return np.array(numbers, dtype=np.int64).reshape(-1, 65)
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return np.column_stack([images, labels]).astype(np.int64)
