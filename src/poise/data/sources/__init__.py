"""Data sources by name. To add one, register a function that returns a `Source`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from poise.core.lazy import LazyRegister
from poise.data.sources.arrays import arrays
from poise.data.sources.source import Source

SOURCES: Mapping[str, Callable[..., Source]] = LazyRegister(
    __name__,
    {
        "cifar10": "cifar10:cifar10",
        "digit-domains": "digit_domains:digit_domains",
        "digits": "digits:digits",
        "fashion-mnist": "fashion_mnist:fashion_mnist",
        "heart-disease": "heart_disease:heart_disease",
        "leaf": "leaf:leaf",
        "mnist": "mnist:mnist",
        "shakespeare": "shakespeare:shakespeare",
        "synthetic": "synthetic:synthetic",
        "usps": "usps:usps",
    },
)

__all__ = ["SOURCES", "Source", "arrays"]
