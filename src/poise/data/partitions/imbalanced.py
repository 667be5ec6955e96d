"""`imbalanced`: classes thin out exponentially."""

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
"""The ratios of B §4.1, from balanced to extremely imbalanced."""


def imbalanced(
    labels: Labels,
    clients: int,
    seed: int = 0,
    *,
    ratio: float | None = None,
    ratios: Sequence[Any] | None = None,
    n_max: int | None = None,
) -> list[Ints]:
    """Class c of K gets n_max · r^{c/(K-1)} samples, rounded, at least one; r = smallest/largest
    class.

    The thin classes are not used up: what no client asks for is dealt to nobody.

    Args:
        labels: (n,) classes.
        clients: number of clients.
        seed: names the random stream.
        ratio: r in (0, 1] for every client.
        ratios: r is drawn for each client from these (client i's depends on (seed, i) only), or
            given by ``(count, ratio)`` pairs; without ``ratio`` and ``ratios``, from the seven of
            the paper.
        n_max: samples of class 0 per client; None takes the most that the classes allow.

    >>> y = np.repeat(np.arange(3), 100)
    >>> [np.bincount(y[p]).tolist() for p in imbalanced(y, 2, ratio=0.01, n_max=50)]
    [[50, 5, 1], [50, 5, 1]]

    Source: B §4.1 (r drawn from {1, .5, .1, .05, .01, .005, .001}), Cao et al. 2019.
    """
    number, classes = (check_clients(clients, len(labels)), check_classes(labels, "imbalanced"))
    require(
        n_max is None or n_max >= 1,
        f"imbalanced: n_max = {n_max!r} must be at least 1",
        where="n_max",
    )
    order, starts = shuffled_by_class(labels, classes, generator(seed, "partition/imbalanced"))
    room, drawn = (np.diff(starts), client_ratios(seed, np.arange(number), ratio, ratios, number))
    fitting = most(drawn, room)
    counts = class_counts(drawn, classes, fitting if n_max is None else n_max)
    asked = counts.sum(axis=0)
    over = int(np.argmax(asked - room))
    require(
        asked[over] <= room[over],
        (
            f"imbalanced: the clients ask for {asked[over]} samples of class {over}, it has "
            f"{room[over]}"
        ),
        (f"n_max = {fitting} would fit; " if n_max and n_max > fitting else "")
        + "try fewer clients, or on_demand=True",
    )
    return deal_classes(counts, order, starts)


def client_ratios(
    seed: int, clients: Ints, ratio: float | None, ratios: Sequence[Any] | None, population: int
) -> Floats:
    """The ratio of each client, (m,): given, by ``(count, ratio)`` pairs, or drawn from (seed,
    client).

    >>> client_ratios(0, np.arange(3), None, [(2, 1.0), (1, 0.1)], 3).tolist()
    [1.0, 1.0, 0.1]
    """
    require(
        ratio is None or ratios is None,
        "imbalanced: ratio and ratios were both given",
        "choose one",
        where="ratio",
    )
    table = np.asarray(RATIOS if ratios is None else ratios, dtype=np.float64)
    if ratio is not None:
        table = np.asarray([ratio], dtype=np.float64)
    require(table.size > 0, "imbalanced: ratios is empty", where="ratios")
    values = table[:, 1] if table.ndim == 2 else table
    inside = bool(((values > 0) & (values <= 1)).all())
    require(inside, f"imbalanced: ratios {values.tolist()} must lie in (0, 1]", where="ratios")
    if table.ndim == 2:
        return repeated(table, population, "ratios")[clients]
    return table[draw(seed, clients, len(table))]


def draw(seed: int, clients: Ints, choices: int) -> Ints:
    """A uniform choice per client, from (seed, client) only, in one expression."""
    word = words(keys(seed, "imbalanced/ratio", clients), 1)[:, 0]
    return (word % np.uint64(choices)).astype(np.int64)


def class_counts(ratios: Floats, classes: int, n_max: int) -> Ints:
    """Samples of each class, (m, classes).

    >>> class_counts(np.array([0.1]), 3, 100)
    array([[100,  32,  10]])
    """
    exponent = np.arange(classes) / max(classes - 1, 1)
    return np.maximum(np.rint(n_max * ratios[:, None] ** exponent), 1).astype(np.int64)


def equal_counts(ratios: Floats, classes: int, size: int) -> Ints:
    """Samples of each class, (m, classes), in proportion to r^{c/(K-1)}, ``size`` in all and at
    least one of each.

    >>> equal_counts(np.array([1.0, 0.01]), 3, 12)
    array([[ 4,  4,  4],
           [10,  1,  1]])
    """
    weights = ratios[:, None] ** (np.arange(classes) / max(classes - 1, 1))
    counts = largest_remainders(
        weights / weights.sum(axis=1, keepdims=True), np.full(len(ratios), size)
    )
    counts[:, 0] -= (counts == 0).sum(
        axis=1
    )  # class 0 is the largest: it gives what the others lack
    return np.maximum(counts, 1)


def most(ratios: Floats, room: Ints) -> int:
    """The largest n_max for which all clients together fit into the classes; at least 1."""
    low, high = 1, max(1, int(room[0]) // len(ratios))
    while low < high:
        middle = (low + high + 1) // 2
        fits = bool((class_counts(ratios, len(room), middle).sum(axis=0) <= room).all())
        low, high = (middle, high) if fits else (low, middle - 1)
    return low
