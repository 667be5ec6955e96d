"""`fashion-mnist`: ten kinds of clothing."""

from __future__ import annotations

from poise.data.catalogue import FASHION_MNIST
from poise.data.files import home
from poise.data.sources.idx import idx_pools
from poise.data.sources.images import public_mean
from poise.data.sources.source import Source


def fashion_mnist(normalize: str = "unit") -> Source:
    """Fashion-MNIST, 60,000 + 10,000 images of 28x28, 7,000 of each class.

    Args:
        normalize: ``unit`` (x/255), ``symmetric``, ``standard`` (per training set),
            ``centred`` (x/255 minus the mean test image), ``inverted`` (1 - x/255) or
            ``raw`` (0 … 255).

    >>> fashion_mnist().train.shape  # doctest: +NEEDS_DATA
    (1, 28, 28)

    Source: [Xiao 2017]; used in [Mansour 2022, §4.1], [Fraboni 2023, §5.5].
    """
    train, test = idx_pools(
        home("fashion-mnist", FASHION_MNIST), FASHION_MNIST, normalize
    )
    return Source(
        "fashion-mnist",
        train,
        test,
        notes="Fashion-MNIST, official files",
        public_mean=public_mean(normalize),
    )
