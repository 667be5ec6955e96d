"""`imbalanced`: class sizes that decrease exponentially."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from poise.core.errors import require
from poise.core.rng import generator, keys, words
from poise.core.types import Floats, Ints
from poise.data.apportionment import largest_remainders
from poise.data.partitions.common import (
    Labels,
    check_classes,
    check_clients,
    deal_classes,
    repeated,
    shuffled_by_class,
)

RATIOS = (1.0, 0.5, 0.1, 0.05, 0.01, 0.005, 0.001)
"""The ratios of [Exp-α 2023, §4.1], from balanced to extremely imbalanced."""


def imbalanced(
    labels: Labels,
    clients: int,
    seed: int = 0,
    *,
    ratio: float | None = None,
    ratios: Sequence[Any] | None = None,
    n_max: int | None = None,
) -> list[Ints]:
    """Give a client n_max · r^{c/(K-1)} samples of class c of K, rounded, at least one.

    r is the size of the smallest class over that of the largest. Samples of small
    classes that no client takes get no owner.

    Args:
        labels: (n,) classes.
        clients: number of clients.
        seed: the seed of the random streams.
        ratio: r in (0, 1] for every client.
        ratios: numbers to draw each client's r from (it depends on (seed, client)
            only), or ``(count, ratio)`` pairs. Without ``ratio`` and ``ratios``, r is
            drawn from the seven numbers of the paper.
        n_max: samples of class 0 per client; None takes the largest number that the
            classes allow.

    >>> y = np.repeat(np.arange(3), 100)
    >>> [np.bincount(y[p]).tolist() for p in imbalanced(y, 2, ratio=0.01, n_max=50)]
    [[50, 5, 1], [50, 5, 1]]

    Source: [Exp-α 2023, §4.1] (r drawn from {1, .5, .1, .05, .01, .005, .001}), [Cao
    2019].
    """
    number = check_clients(clients, len(labels))
    classes = check_classes(labels, "imbalanced")
    require(
        n_max is None or n_max >= 1,
        f"imbalanced: n_max = {n_max!r} must be at least 1",
        where="n_max",
    )
    order, starts = shuffled_by_class(
        labels, classes, generator(seed, "partition/imbalanced")
    )
    room = np.diff(starts)
    drawn = client_ratios(
        seed, np.arange(number), ratio=ratio, ratios=ratios, population=number
    )
    fitting = largest_n_max(drawn, room)
    if n_max is None:
        n_max = fitting
    counts = class_counts(drawn, classes, n_max=n_max)
    needed = counts.sum(axis=0)
    over = int(np.argmax(needed - room))
    hint = "try fewer clients, or on_demand=True"
    if n_max > fitting:
        hint = f"n_max = {fitting} would fit; {hint}"
    require(
        needed[over] <= room[over],
        (
            f"imbalanced: the clients need {needed[over]} samples of class {over}, it has "
            f"{room[over]}"
        ),
        hint,
    )
    return deal_classes(counts, order, starts=starts)


def client_ratios(
    seed: int,
    clients: Ints,
    ratio: float | None,
    ratios: Sequence[Any] | None,
    population: int,
) -> Floats:
    """Return the ratio of each client, (m,).

    It is ``ratio``, or follows from ``(count, ratio)`` pairs, or is drawn from (seed,
    client).

    >>> client_ratios(0, np.arange(3), None, [(2, 1.0), (1, 0.1)], 3).tolist()
    [1.0, 1.0, 0.1]
    """
    require(
        ratio is None or ratios is None,
        "imbalanced: ratio and ratios are both given",
        "give one of them",
        where="ratio",
    )
    if ratio is not None:
        ratios = [ratio]
    elif ratios is None:
        ratios = RATIOS
    table = np.asarray(ratios, dtype=np.float64)
    require(table.size > 0, "imbalanced: ratios is empty", where="ratios")
    values = table[:, 1] if table.ndim == 2 else table
    inside = bool(((values > 0) & (values <= 1)).all())
    require(
        inside,
        f"imbalanced: ratios {values.tolist()} must lie in (0, 1]",
        where="ratios",
    )
    if table.ndim == 2:
        return repeated(table, population, "ratios")[clients]
    return table[draw(seed, clients, len(table))]


def draw(seed: int, clients: Ints, choices: int) -> Ints:
    """Draw a uniform choice for each client, which depends on (seed, client) only."""
    word = words(keys(seed, "imbalanced/ratio", clients), 1)[:, 0]
    return (word % np.uint64(choices)).astype(np.int64)


def class_counts(ratios: Floats, classes: int, n_max: int) -> Ints:
    """Return the samples of each class, (m, classes).

    >>> class_counts(np.array([0.1]), 3, 100)
    array([[100,  32,  10]])
    """
    exponent = np.arange(classes) / max(classes - 1, 1)
    return np.maximum(np.rint(n_max * ratios[:, None] ** exponent), 1).astype(np.int64)


def equal_counts(ratios: Floats, classes: int, size: int) -> Ints:
    """Return the samples of each class, (m, classes), in proportion to r^{c/(K-1)}.

    Each client has ``size`` samples, and at least one of each class.

    >>> equal_counts(np.array([1.0, 0.01]), 3, 12)
    array([[ 4,  4,  4],
           [10,  1,  1]])
    """
    weights = ratios[:, None] ** (np.arange(classes) / max(classes - 1, 1))
    shares = weights / weights.sum(axis=1, keepdims=True)
    counts = largest_remainders(shares, np.full(len(ratios), size))
    empty = (counts == 0).sum(axis=1)
    counts[:, 0] -= (
        empty  # class 0 is the largest: it gives one sample to each empty class
    )
    return np.maximum(counts, 1)


def largest_n_max(ratios: Floats, room: Ints) -> int:
    """Return the largest n_max, at least 1, with which all clients fit."""
    low = 1
    high = max(1, int(room[0]) // len(ratios))
    while low < high:
        middle = (low + high + 1) // 2
        needed = class_counts(ratios, len(room), n_max=middle).sum(axis=0)
        if (needed <= room).all():
            low = middle
        else:
            high = middle - 1
    return low
