"""`digit-domains`: handwritten digits of several data sets, resized to one shape."""

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
from poise.core.trees import first
from poise.core.types import Ints
from poise.data.sources.digits import digits
from poise.data.sources.mnist import mnist
from poise.data.sources.source import Source
from poise.data.sources.usps import usps
from poise.data.splits import balanced_subset, held_out

_TEST_SHARE = 0.2


@dataclass(frozen=True, eq=False)
class PoolSubset:
    """The samples of a pool at the positions ``rows``."""

    pool: Samples
    rows: Ints

    @property
    def labels(self) -> Ints:
        """Class of each sample."""
        return np.asarray(self.pool.labels.numpy()[self.rows])

    def subset(self, count: int | None, rng: np.random.Generator) -> PoolSubset:
        """Return a class-balanced random subset, or all samples if count is None."""
        if count is None:
            return self
        chosen = balanced_subset(self.labels, count, classes=10, rng=rng)
        return PoolSubset(self.pool, self.rows[chosen])


def _whole(load: Callable[[], Source]) -> tuple[PoolSubset, PoolSubset]:
    """Return all training and test samples of a source."""
    source = load()
    assert source.test is not None
    train = PoolSubset(source.train, np.arange(len(source.train)))
    test = PoolSubset(source.test, np.arange(len(source.test)))
    return train, test


def _series(name: str) -> tuple[PoolSubset, PoolSubset]:
    """Return the digits of one NIST series, with a fifth of each class held out.

    The series of MNIST's own test digits is unknown.
    """
    source = mnist(by="series")
    assert source.keys is not None
    rows = np.flatnonzero(source.keys == source.key_names.index(name))
    out = held_out(
        source.train.labels.numpy()[rows],
        _TEST_SHARE,
        generator(0, "digit-domains/test"),
    )
    return PoolSubset(source.train, rows[~out]), PoolSubset(source.train, rows[out])


DOMAINS: dict[str, Callable[[], tuple[PoolSubset, PoolSubset]]] = {
    "digits": partial(_whole, digits),
    "mnist": partial(_whole, mnist),
    "mnist-series-0": partial(_series, "series/0"),
    "mnist-series-4": partial(_series, "series/4"),
    "usps": partial(_whole, usps),
}
"""Training and test samples of each domain."""


def digit_domains(
    domains: Sequence[str] = ("mnist-series-0", "mnist-series-4", "usps", "digits"),
    size: int = 16,
    clients_per_domain: int = 1,
    samples_per_domain: int | None = None,
    test_samples_per_domain: int | None = None,
    seed: int = 0,
) -> Source:
    """The ten digits of several data sets; under ``by-key``, clients are domains.

    Grey values are scaled to 0 … 1 and images resized to ``size`` × ``size`` (bilinear,
    anti-aliased), then stored in 256 steps. Line width, slant and margins stay those of
    the domain. A client's own test samples come from its domain; the federation's test
    set holds those of all domains.

    Args:
        domains: of ``mnist`` (28x28), or its series ``mnist-series-0`` (employees) and
            ``mnist-series-4`` (students), ``usps`` (16x16), ``digits`` (8x8).
        size: edge of the images in pixels.
        clients_per_domain: number of clients that share a domain, with equal class
            shares.
        samples_per_domain: first take a class-balanced random subset of each domain;
            None takes all.
        test_samples_per_domain: the same for the test samples.
        seed: the seed of subsets and clients.

    >>> source = digit_domains(["digits"], size=12, clients_per_domain=2)
    >>> source.train.shape, source.key_names, np.bincount(source.keys).tolist()
    ((1, 12, 12), ('digits/0', 'digits/1'), [719, 719])

    Source: [Exp-α 2023, §4.3] (one client per domain, 892 training samples each).
    """
    _check(domains, size, clients_per_domain)
    train: list[PoolSubset] = []
    test: list[PoolSubset] = []
    names: list[str] = []
    for name in domains:
        domain_train, domain_test = DOMAINS[name]()
        train_stream = generator(seed, f"digit-domains/train/{name}")
        test_stream = generator(seed, f"digit-domains/test/{name}")
        train.append(domain_train.subset(samples_per_domain, train_stream))
        test.append(domain_test.subset(test_samples_per_domain, test_stream))
        if clients_per_domain == 1:
            names.append(name)
        else:
            names += [f"{name}/{client}" for client in range(clients_per_domain)]
    return Source(
        "digit-domains",
        _pool(train, size),
        _pool(test, size),
        keys=_keys(train, clients_per_domain, seed=seed),
        test_keys=_keys(test, clients_per_domain, seed=seed),
        key_names=tuple(names),
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
        f"digit-domains: {list(domains)} names a domain twice",
        where="domains",
    )
    overlap = "mnist" in domains and any(
        name.startswith("mnist-series") for name in domains
    )
    require(
        not overlap,
        "digit-domains: 'mnist' contains the digits of its series",
        "name 'mnist' or its series, not both",
        where="domains",
    )
    require(size >= 4, f"digit-domains: size = {size} must be at least 4", where="size")
    require(
        clients_per_domain >= 1,
        f"digit-domains: clients_per_domain = {clients_per_domain} must be at least 1",
        where="clients_per_domain",
    )


def _keys(domains: Sequence[PoolSubset], clients: int, seed: int) -> Ints:
    """Return the client of each sample, counted over all domains."""
    owners = [_owners(domain, clients, seed=seed) for domain in domains]
    return np.concatenate([k * clients + owner for k, owner in enumerate(owners)])


def _owners(domain: PoolSubset, clients: int, seed: int) -> Ints:
    """Deal the samples of a domain to its clients, class by class, in random order."""
    shuffle = generator(seed, "digit-domains/clients").random(len(domain.rows))
    order = np.lexsort((shuffle, domain.labels))
    owner = np.empty(len(order), dtype=np.int64)
    owner[order] = np.arange(len(order)) % clients
    return owner


def _pool(domains: Sequence[PoolSubset], size: int) -> Samples:
    """Return one pool of the resized images of all domains."""
    images = [
        resized(first(domain.pool.features(torch.from_numpy(domain.rows))), size)
        for domain in domains
    ]
    labels = torch.from_numpy(np.concatenate([domain.labels for domain in domains]))
    return Samples(torch.cat(images), labels, 1 / 255, classes=10)


def resized(images: torch.Tensor, size: int) -> torch.Tensor:
    """Resize images (n, 1, h, w) in 0 … 1 to bytes (n, 1, size, size).

    >>> resized(torch.tensor([[[[0.0, 1.0], [0.0, 1.0]]]]), 1).item()
    128
    """
    values = F.interpolate(images, (size, size), mode="bilinear", antialias=True)
    return values.clamp_(0, 1).mul_(255).round_().to(torch.uint8)
