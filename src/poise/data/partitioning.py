"""Dealing: from a source and a rule to who owns what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from poise.core.errors import InvalidOption, errors_at, require
from poise.core.rng import generator
from poise.core.samples import Samples
from poise.core.types import Ints
from poise.data.holdings import Held, Holdings
from poise.data.partitions import by_key
from poise.data.populations import POPULATIONS, Population, PopulationRequest
from poise.data.sources.source import Source
from poise.data.splits import balanced_subset, held_out, share_of

Partition: TypeAlias = str | Sequence[ArrayLike]
"""The name of a rule, or one index array per client."""

Rule: TypeAlias = Callable[..., Any]
"""A partition takes the labels, the number of clients and the seed, a population one request; both
take options."""


def subset(pool: Source, samples: int | None, test_samples: int | None, seed: int) -> Source:
    """The class-balanced random subsets that were asked for."""
    if samples is not None:
        rows = _positions(pool.train, pool.rows)
        with errors_at("samples"):
            chosen = _chosen(pool.train, rows, samples, generator(seed, "samples"))
        pool = replace(
            pool, rows=rows[chosen], keys=None if pool.keys is None else pool.keys[chosen]
        )
    if test_samples is not None:
        if pool.test is None:
            raise InvalidOption(
                f"test_samples = {test_samples}, but {pool.name} has no held-out data",
                where=("test_samples",),
            )
        rows = _positions(pool.test, pool.test_rows)
        with errors_at("test_samples"):
            chosen = _chosen(pool.test, rows, test_samples, generator(seed, "test-samples"))
        owners = None if pool.test_keys is None else pool.test_keys[chosen]
        pool = replace(pool, test_rows=rows[chosen], test_keys=owners)
    return pool


def _positions(pool: Samples, rows: Ints | None) -> Ints:
    return np.arange(len(pool)) if rows is None else rows


def _chosen(pool: Samples, rows: Ints, count: int, rng: np.random.Generator) -> Ints:
    return balanced_subset(pool.labels.numpy()[rows], count, pool.classes, rng)


def deal(
    pool: Source,
    partition: Partition,
    rule: Rule | None,
    clients: int | None,
    seed: int,
    options: dict[str, Any],
) -> tuple[Holdings, Ints | None]:
    """Who owns which rows of the training pool, and, for natural clients, which key each client
    is.
    """
    rows = _positions(pool.train, pool.rows)
    if rule is None:
        return Held.of([rows[part] for part in _given(partition, clients, len(rows))]), None
    if rule is by_key:
        if pool.keys is None:
            hint = (
                "pass by='writer' or by='series'"
                if pool.name == "mnist"
                else "pass keys= with (x, y) arrays"
            )
            raise InvalidOption(
                f"by-key: {pool.name} has no natural clients here", hint, where=("partition",)
            )
        parts, keys = by_key(pool.keys, clients, seed, **options)
        return Held.of([rows[part] for part in parts]), keys
    labels = pool.train.labels.numpy()[rows]
    if rule in POPULATIONS.values():
        assert clients is not None  # only natural clients are as many as the data say
        population: Population = rule(PopulationRequest(labels, clients, seed), **options)
        return replace(population, order=rows[population.order]), None
    return Held.of([rows[part] for part in rule(labels, clients, seed, **options)]), None


def _given(partition: Partition, clients: int | None, available: int) -> list[Ints]:
    """A partition of the user's, each client's indices checked."""
    parts = [np.asarray(part) for part in partition]
    require(len(parts) > 0, "the partition has no clients", where="partition")
    agrees = clients is None or clients == len(parts)
    require(
        agrees,
        f"clients = {clients}, but the partition has {len(parts)} index arrays",
        where="clients",
    )
    for client, part in enumerate(parts):
        require(
            part.ndim == 1 and len(part) > 0, f"client {client} owns no samples", where="partition"
        )
        require(
            part.dtype.kind in "iu",
            f"client {client}: indices must be whole numbers, not {part.dtype}",
            where="partition",
        )
        wrong = part[(part < 0) | (part >= available)]
        first = wrong[0] if len(wrong) else 0
        require(
            not len(wrong),
            f"client {client}: there is no sample {first}",
            f"samples are 0 to {available - 1}",
            where="partition",
        )
    return [part.astype(np.int64) for part in parts]


def own_tests(
    pool: Source, held: Held, keys: Ints | None, share: float | None, seed: int
) -> tuple[Held, tuple[Samples, Held] | None]:
    """The clients' own test samples: the source's, or held back from what each client owns."""
    if keys is not None and pool.test_keys is not None and pool.test is not None and share is None:
        test_rows = _positions(pool.test, pool.test_rows)
        order = np.argsort(pool.test_keys, kind="stable")
        begin, end = (
            np.searchsorted(pool.test_keys[order], keys, side=side) for side in ("left", "right")
        )
        parts = [test_rows[order[b:e]] for b, e in zip(begin, end, strict=True)]
        return held, (pool.test, Held.of(parts))
    natural = pool.client_test_share if keys is not None else 0.0
    wanted = share_of(natural if share is None else share, "client_test_share")
    if wanted == 0:
        return held, None
    kept, out = held.split(held_out(held.owners, wanted, generator(seed, "client-test")))
    return kept, (pool.train, out)


def with_free_riders(held: Held, count: int, seed: int) -> Held:
    """More clients that own nothing and declare the mean size of the others.

    Rows drawn from all that is owned, each at most once per free-rider, stand for what it claims to
    have.

    >>> with_free_riders(Held.of([np.array([4, 7]), np.array([1, 2, 3, 9])]), 2, seed=0).sizes().tolist()
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
    fair = np.split(held.flat, held.offsets[1:-1])
    claims = [
        generator(seed, "free-riders", k).choice(held.flat, size, replace=False)
        for k in range(count)
    ]
    return Held.of([*fair, *claims])
