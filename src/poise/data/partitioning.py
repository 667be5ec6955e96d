"""Deal the samples of a source to clients by a partition rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poise.core.errors import InvalidOption, errors_at, require
from poise.core.rng import generator
from poise.core.samples import Samples
from poise.core.types import Ints
from poise.data.holdings import Holdings, StoredHoldings
from poise.data.partitions import by_key
from poise.data.populations import POPULATIONS, Population, PopulationRequest
from poise.data.sources.source import Source
from poise.data.splits import balanced_subset, held_out, share_of

Partition: TypeAlias = str | Sequence[ArrayLike]
"""The name of a rule, or one index array per client."""

PartitionRule: TypeAlias = Callable[..., Any]
"""A partition function of labels, clients and seed, or a population function of one
request; both take options."""


def subset(
    pool: Source, samples: int | None, test_samples: int | None, seed: int
) -> Source:
    """Return the source with class-balanced random subsets; None keeps all samples."""
    if samples is not None:
        rows = _positions(pool.train, pool.rows)
        with errors_at("samples"):
            chosen = _chosen(pool.train, rows, samples, generator(seed, "samples"))
        owners = _at(pool.keys, chosen)
        groups = _at(pool.groups, chosen)
        pool = replace(pool, rows=rows[chosen], keys=owners, groups=groups)
    if test_samples is not None:
        if pool.test is None:
            raise InvalidOption(
                f"test_samples = {test_samples}, but {pool.name} has no held-out data",
                where=("test_samples",),
            )
        rows = _positions(pool.test, pool.test_rows)
        with errors_at("test_samples"):
            chosen = _chosen(
                pool.test, rows, test_samples, generator(seed, "test-samples")
            )
        owners = _at(pool.test_keys, chosen)
        pool = replace(pool, test_rows=rows[chosen], test_keys=owners)
    return pool


def _at(keys: Ints | None, positions: Ints) -> Ints | None:
    """Return the keys at these positions; None without keys."""
    if keys is None:
        return None
    return keys[positions]


def _positions(pool: Samples, rows: Ints | None) -> Ints:
    if rows is None:
        return np.arange(len(pool))
    return rows


def _chosen(pool: Samples, rows: Ints, count: int, rng: np.random.Generator) -> Ints:
    return balanced_subset(pool.labels.numpy()[rows], count, pool.classes, rng)


def deal(
    pool: Source,
    partition: Partition,
    rule: PartitionRule | None,
    clients: int | None,
    seed: int,
    options: dict[str, Any],
) -> tuple[Holdings, Ints | None]:
    """Return the rows of each client, and the keys of natural clients."""
    rows = _positions(pool.train, pool.rows)
    if rule is None:
        indices = _index_arrays(partition, clients, available=len(rows))
        return StoredHoldings.of([rows[part] for part in indices]), None
    if rule is by_key:
        if pool.keys is None:
            hint = "pass keys= with (x, y) arrays"
            if pool.name == "mnist":
                hint = "pass by='writer' or by='series'"
            raise InvalidOption(
                f"by-key: {pool.name} has no natural clients here",
                hint,
                where=("partition",),
            )
        parts, keys = by_key(pool.keys, clients, seed, **options)
        return StoredHoldings.of([rows[part] for part in parts]), keys
    labels = _groups(pool, rows)
    if rule in POPULATIONS.values():
        # only by-key takes the number of clients from the data
        assert clients is not None
        population: Population = rule(
            PopulationRequest(labels, clients, seed), **options
        )
        return replace(population, order=rows[population.order]), None
    return StoredHoldings.of(
        [rows[part] for part in rule(labels, clients, seed, **options)]
    ), None


def _groups(pool: Source, rows: Ints) -> NDArray[Any]:
    """Return the labels by which partitions deal, (n,); floats if there are no classes."""
    if pool.groups is not None:
        return pool.groups
    labels: NDArray[Any] = pool.train.labels.numpy()[rows]
    if labels.ndim > 1:
        return np.zeros(len(labels))
    return labels


def _index_arrays(
    partition: Partition, clients: int | None, available: int
) -> list[Ints]:
    """Return the user's index arrays after checking them."""
    parts = [np.asarray(part) for part in partition]
    require(len(parts) > 0, "the partition has no clients", where="partition")
    require(
        clients is None or clients == len(parts),
        f"clients = {clients}, but the partition has {len(parts)} index arrays",
        where="clients",
    )
    for client, part in enumerate(parts):
        require(
            part.ndim == 1 and len(part) > 0,
            f"client {client} owns no samples",
            where="partition",
        )
        require(
            part.dtype.kind in "iu",
            f"client {client}: indices must be whole numbers, not {part.dtype}",
            where="partition",
        )
        outside = part[(part < 0) | (part >= available)]
        if len(outside):
            raise InvalidOption(
                f"client {client}: there is no sample {outside[0]}",
                f"samples are 0 to {available - 1}",
                where=("partition",),
            )
    return [part.astype(np.int64) for part in parts]


def own_tests(
    pool: Source,
    held: StoredHoldings,
    keys: Ints | None,
    share: float | None,
    seed: int,
) -> tuple[StoredHoldings, tuple[Samples, StoredHoldings] | None]:
    """Return the training holdings, and the clients' own test samples.

    Test samples come from the source, or from the training samples of each client.
    """
    if (
        keys is not None
        and pool.test_keys is not None
        and pool.test is not None
        and share is None
    ):
        test_rows = _positions(pool.test, pool.test_rows)
        order = np.argsort(pool.test_keys, kind="stable")
        sorted_keys = pool.test_keys[order]
        begin = np.searchsorted(sorted_keys, keys, side="left")
        end = np.searchsorted(sorted_keys, keys, side="right")
        parts = [test_rows[order[b:e]] for b, e in zip(begin, end, strict=True)]
        return held, (pool.test, StoredHoldings.of(parts))
    if share is None:
        share = 0.0
        if keys is not None:
            share = pool.client_test_share
    test_share = share_of(share, "client_test_share")
    if test_share == 0:
        return held, None
    marked = held_out(held.owners, test_share, generator(seed, "client-test"))
    train, test = held.split(marked)
    return train, (pool.train, test)


def with_free_riders(held: StoredHoldings, count: int, seed: int) -> StoredHoldings:
    """Add clients without data that declare the mean size of the others.

    Rows drawn from all owned rows, each at most once per free-rider, stand for the data
    it claims.

    >>> held = StoredHoldings.of([np.array([4, 7]), np.array([1, 2, 3, 9])])
    >>> with_free_riders(held, 2, seed=0).sizes().tolist()
    [2, 4, 3, 3]
    """
    require(
        type(count) is int and count >= 0,
        f"free_riders must be a whole number from 0, not {count!r}",
        where="free_riders",
    )
    if not count:
        return held
    size = round(len(held.flat) / held.clients)
    honest = np.split(held.flat, held.offsets[1:-1])
    claims = [
        generator(seed, "free-riders", k).choice(held.flat, size, replace=False)
        for k in range(count)
    ]
    return StoredHoldings.of([*honest, *claims])
