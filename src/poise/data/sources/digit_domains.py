"""`digit-domains`: handwritten digits from several data sets, brought to one shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F

from poise.core.errors import InvalidOption, require, suggest
from poise.core.rng import generator
from poise.core.samples import Samples
from poise.core.types import Ints
from poise.data.sources.digits import digits
from poise.data.sources.mnist import mnist
from poise.data.sources.source import Source
from poise.data.sources.usps import usps
from poise.data.splits import balanced_subset, held_out

_TEST_SHARE = 0.2


@dataclass(frozen=True, eq=False)
class Part:
    """Some samples of a pool: the positions ``rows``."""

    pool: Samples
    rows: Ints

    @property
    def labels(self) -> Ints:
        """Class of each sample."""
        return np.asarray(self.pool.labels.numpy()[self.rows])

    def subset(self, count: int | None, rng: np.random.Generator) -> Part:
        """A class-balanced random part of it; all of it where no count is given."""
        return (
            self
            if count is None
            else Part(self.pool, self.rows[balanced_subset(self.labels, count, 10, rng)])
        )


def _whole(load: Callable[[], Source]) -> tuple[Part, Part]:
    source = load()
    assert source.test is not None
    return Part(source.train, np.arange(len(source.train))), Part(
        source.test, np.arange(len(source.test))
    )


def _series(name: str) -> tuple[Part, Part]:
    """The digits of one NIST series, a fifth of each class held out: whose MNIST's own test digits
    are is unknown.
    """
    source = mnist(by="series")
    assert source.keys is not None
    rows = np.flatnonzero(source.keys == source.key_names.index(name))
    out = held_out(
        source.train.labels.numpy()[rows], _TEST_SHARE, generator(0, "digit-domains/test")
    )
    return Part(source.train, rows[~out]), Part(source.train, rows[out])


DOMAINS: dict[str, Callable[[], tuple[Part, Part]]] = {
    "digits": partial(_whole, digits),
    "mnist": partial(_whole, mnist),
    "mnist-series-0": partial(_series, "series/0"),
    "mnist-series-4": partial(_series, "series/4"),
    "usps": partial(_whole, usps),
}
"""Training and test part of each domain."""


def digit_domains(
    domains: Sequence[str] = ("mnist-series-0", "mnist-series-4", "usps", "digits"),
    size: int = 16,
    clients_per_domain: int = 1,
    samples_per_domain: int | None = None,
    test_samples_per_domain: int | None = None,
    seed: int = 0,
) -> Source:
    """The ten digits as several data sets have them; with the partition ``by-key``, clients are
    domains.

    Grey values are scaled to 0 … 1 and images resized to ``size`` × ``size`` (bilinear,
    anti-aliased), then stored in 256 steps. Nothing else is done: line width, slant and margins
    stay those of the domain. Every client's own test samples are of its domain; the federation's
    test set is all of them.

    Args:
        domains: of ``mnist`` (28x28), or its series ``mnist-series-0`` (employees) and
            ``mnist-series-4`` (students), ``usps`` (16x16), ``digits`` (8x8).
        size: edge of the images in pixels.
        clients_per_domain: every domain is dealt to that many clients, with equal class shares.
        samples_per_domain: first take a class-balanced random subset of each domain; None takes
            all.
        test_samples_per_domain: likewise of the test samples.
        seed: names the random streams of subsets and clients.

    >>> source = digit_domains(["digits"], size=12, clients_per_domain=2)
    >>> source.train.shape, source.key_names, np.bincount(source.keys).tolist()
    ((1, 12, 12), ('digits/0', 'digits/1'), [719, 719])

    Source: B §4.3 (one client per domain, 892 training samples each).
    """
    _check(domains, size, clients_per_domain)
    counts = {"train": samples_per_domain, "test": test_samples_per_domain}
    train, test = (
        [
            DOMAINS[name]()[k].subset(counts[kind], generator(seed, f"digit-domains/{kind}/{name}"))
            for name in domains
        ]
        for k, kind in enumerate(counts)
    )
    keys, test_keys = (
        np.concatenate(
            [
                k * clients_per_domain + _dealt(p, clients_per_domain, seed)
                for k, p in enumerate(those)
            ]
        )
        for those in (train, test)
    )
    names = [
        [d] if clients_per_domain == 1 else [f"{d}/{j}" for j in range(clients_per_domain)]
        for d in domains
    ]
    return Source(
        "digit-domains",
        _pool(train, size),
        _pool(test, size),
        keys=keys,
        test_keys=test_keys,
        key_names=tuple(name for own in names for name in own),
        notes=f"{', '.join(domains)}, resized to {size}x{size}",
    )


def _check(domains: Sequence[str], size: int, clients_per_domain: int) -> None:
    require(
        len(domains) > 0,
        "digit-domains: domains is empty",
        f"known: {', '.join(DOMAINS)}",
        where="domains",
    )
    for name in domains:
        if name not in DOMAINS:
            raise InvalidOption(
                f"digit-domains: unknown domain {name!r}",
                suggest(str(name), DOMAINS),
                where=("domains",),
            )
    require(
        len(set(domains)) == len(domains),
        f"digit-domains: a domain is named twice in {list(domains)}",
        where="domains",
    )
    twice = "mnist" in domains and any(name.startswith("mnist-series") for name in domains)
    require(
        not twice,
        "digit-domains: 'mnist' holds the digits of its series",
        "name 'mnist' or its series, not both",
        where="domains",
    )
    require(size >= 4, f"digit-domains: size = {size} must be at least 4", where="size")
    require(
        clients_per_domain >= 1,
        f"digit-domains: clients_per_domain = {clients_per_domain} must be at least 1",
        where="clients_per_domain",
    )


def _dealt(part: Part, clients: int, seed: int) -> Ints:
    """Which of its domain's clients owns each sample: dealt class by class, in random order."""
    order = np.lexsort(
        (generator(seed, "digit-domains/clients").random(len(part.rows)), part.labels)
    )
    owner = np.empty(len(order), dtype=np.int64)
    owner[order] = np.arange(len(order)) % clients
    return owner


def _pool(parts: Sequence[Part], size: int) -> Samples:
    raw = torch.cat(
        [resized(part.pool.features(torch.from_numpy(part.rows)), size) for part in parts]
    )
    labels = torch.from_numpy(np.concatenate([part.labels for part in parts]))
    return Samples(raw, labels, 1 / 255, classes=10)


def resized(images: torch.Tensor, size: int) -> torch.Tensor:
    """Images (n, 1, h, w) in 0 … 1 as bytes (n, 1, size, size).

    >>> resized(torch.tensor([[[[0.0, 1.0], [0.0, 1.0]]]]), 1).item()
    128
    """
    made = F.interpolate(images, (size, size), mode="bilinear", antialias=True)
    return made.clamp_(0, 1).mul_(255).round_().to(torch.uint8)
