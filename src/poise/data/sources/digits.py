"""`digits`: 1,797 images that ship with scikit-learn."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from poise.core.rng import generator
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
            training set) or ``centred`` (x/16 minus the mean test image).
        test_share: the held-out share of each class.

    >>> source = digits()
    >>> len(source.train), len(source.test), source.train.shape
    (1438, 359, (1, 8, 8))
    """
    from sklearn.datasets import load_digits

    held = load_digits()
    images = np.asarray(held.images).astype(np.uint8)[:, None]
    labels = np.asarray(held.target).astype(np.int64)
    test = held_out(
        labels, share_of(test_share, "test_share"), generator(0, "digits/test")
    )
    train_pool, test_pool = image_pools(
        (images[~test], labels[~test]),
        (images[test], labels[test]),
        top=16,
        normalize=normalize,
    )
    held_out_pool = test_pool if test.any() else None
    return Source(
        "digits",
        train_pool,
        held_out_pool,
        notes="scikit-learn digits",
        public_mean=public_mean(normalize),
    )
