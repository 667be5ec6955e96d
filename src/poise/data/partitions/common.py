"""Helpers of the partition rules: checks, client sizes and cuts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poise.core.errors import InvalidOption, require
from poise.core.types import Ints

Labels: TypeAlias = NDArray[Any]
Sizes: TypeAlias = int | Sequence[int] | Sequence[tuple[int, int]] | Ints | None


def check_clients(clients: int, samples: int) -> int:
    """Return the number of clients, from 1 to the number of samples."""
    whole = isinstance(clients, int | np.integer) and not isinstance(clients, bool)
    require(
        whole and clients >= 1,
        f"clients = {clients!r} must be a whole number of at least 1",
        where="clients",
    )
    require(
        clients <= samples,
        f"{clients} clients, but only {samples} samples",
        (
            f"at most {samples} clients can own one sample each; on_demand=True lets clients share "
            "samples"
        ),
        where="clients",
    )
    return int(clients)


def check_classes(labels: Labels, rule: str) -> int:
    """Return the number of classes; raises unless labels are whole numbers."""
    require(
        labels.dtype.kind in "iu",
        f"partition {rule!r} needs one class per sample",
        "give by= one group per sample, or use 'iid', 'by-key' or index arrays",
        where="partition",
    )
    return int(labels.max()) + 1


def repeated(pairs: ArrayLike, clients: int, name: str) -> NDArray[Any]:
    """Return one value per client from ``(count, value)`` pairs, first pair first.

    >>> repeated([(2, 10), (1, 5)], 3, "sizes").tolist()
    [10, 10, 5]
    """
    table = np.asarray(pairs)
    counts = table[:, 0].astype(np.int64)
    require(
        bool((counts >= 0).all()), f"{name}: a negative number of clients", where=name
    )
    require(
        int(counts.sum()) == clients,
        f"{name} describe {int(counts.sum())} clients, not {clients}",
        where=name,
    )
    return np.repeat(table[:, 1], counts)


def client_sizes(sizes: Sizes, clients: int, samples: int) -> Ints:
    """Return the samples per client, (clients,).

    ``sizes`` is None (all samples, sizes equal or one apart, larger ones first), a
    number (the size of every client), one size per client, or ``(count, size)`` pairs.

    >>> client_sizes(None, 3, 8).tolist(), client_sizes([(1, 4), (2, 1)], 3, 8).tolist()
    ([3, 3, 2], [4, 1, 1])
    """
    if sizes is None:
        each, more = divmod(samples, clients)
        return each + (np.arange(clients) < more).astype(np.int64)
    try:
        given = np.asarray(sizes)
    except ValueError as error:
        raise InvalidOption(
            f"sizes: {error}",
            "give one size per client, or (count, size) pairs",
            where=("sizes",),
        ) from error
    require(
        given.dtype.kind in "iu",
        f"sizes must be whole numbers, not {sizes!r}",
        where="sizes",
    )
    if given.ndim == 2 and given.shape[1] == 2:
        given = repeated(given, clients, "sizes")
    if given.ndim == 0:
        given = np.broadcast_to(given, (clients,))
    require(
        given.shape == (clients,),
        f"sizes has shape {given.shape}, but there are {clients} clients",
        where="sizes",
    )
    empty = np.flatnonzero(given < 1)
    if len(empty):
        raise InvalidOption(
            f"sizes: client {empty[0]} would own less than one sample", where=("sizes",)
        )
    total = int(given.sum())
    require(
        total <= samples,
        f"sizes sum to {total}, but there are {samples} samples",
        "choose smaller sizes",
        where="sizes",
    )
    return given.astype(np.int64)


def cut(order: Ints, sizes: Ints) -> list[Ints]:
    """Cut ``order`` into consecutive pieces of these sizes; the rest gets no owner."""
    return np.split(order[: int(sizes.sum())], np.cumsum(sizes)[:-1])


def shuffled_by_class(
    labels: Labels, classes: int, rng: np.random.Generator
) -> tuple[Ints, Ints]:
    """Return positions sorted by class, shuffled inside, and where each class starts.

    >>> order, starts = shuffled_by_class(np.array([1, 0, 1]), 2, np.random.default_rng(0))
    >>> starts.tolist(), order[0]
    ([0, 1, 3], np.int64(1))
    """
    order = np.lexsort((rng.random(len(labels)), labels)).astype(np.int64)
    counts = np.bincount(labels, minlength=classes)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return order, starts


def deal_classes(counts: Ints, order: Ints, starts: Ints) -> list[Ints]:
    """Give client i ``counts[i, c]`` samples of class c, without overlap.

    Args:
        counts: (clients, classes), column sums at most the class sizes.
        order: positions sorted by class.
        starts: where each class starts in ``order``.
    """
    begin = starts[:-1] + np.cumsum(counts, axis=0) - counts
    flat = counts.ravel()
    step = np.arange(int(flat.sum())) - np.repeat(np.cumsum(flat) - flat, flat)
    rows = order[np.repeat(begin.ravel(), flat) + step]
    return np.split(rows, np.cumsum(counts.sum(axis=1))[:-1])
