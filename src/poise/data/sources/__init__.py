"""Data sources by name. To add one, register a function that returns a `Source`."""

from __future__ import annotations

from collections.abc import Callable

from poise.data.sources.arrays import arrays
from poise.data.sources.cifar10 import cifar10
from poise.data.sources.digit_domains import digit_domains
from poise.data.sources.digits import digits
from poise.data.sources.fashion_mnist import fashion_mnist
from poise.data.sources.heart_disease import heart_disease
from poise.data.sources.leaf import leaf
from poise.data.sources.mnist import mnist
from poise.data.sources.shakespeare import shakespeare
from poise.data.sources.source import Source
from poise.data.sources.synthetic import synthetic
from poise.data.sources.usps import usps

SOURCES: dict[str, Callable[..., Source]] = {
    "cifar10": cifar10,
    "digit-domains": digit_domains,
    "digits": digits,
    "fashion-mnist": fashion_mnist,
    "heart-disease": heart_disease,
    "leaf": leaf,
    "mnist": mnist,
    "shakespeare": shakespeare,
    "synthetic": synthetic,
    "usps": usps,
}

__all__ = ["SOURCES", "Source", "arrays"]
