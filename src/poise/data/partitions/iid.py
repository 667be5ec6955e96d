"""`iid`: the same class distribution for every client."""

from __future__ import annotations

import numpy as np

from poise.core.rng import generator
from poise.core.types import Ints
from poise.data.partitions.common import Labels, Sizes, check_clients, client_sizes, cut


def iid(
    labels: Labels,
    clients: int,
    seed: int = 0,
    *,
    sizes: Sizes = None,
    stratified: bool = True,
) -> list[Ints]:
    """Give every client the label distribution of the whole set.

    The rule spreads the samples of each class evenly over a line, (rank + u_c)/n_c with
    u_c ~ U(0, 1), and cuts the line into clients. Class proportions are those of the
    whole set up to rounding, for all sizes. Every sample gets an owner unless ``sizes``
    sum to fewer.

    Args:
        labels: (n,); floating labels are dealt in random order.
        clients: number of clients.
        seed: the seed of the random stream.
        sizes: None for equal sizes, a number, one size per client, or ``(count, size)``
            pairs.
        stratified: False deals a plain random permutation, with the same distribution
            in law only.

    >>> parts = iid(np.array([0, 1] * 10), 4)
    >>> [np.bincount(np.array([0, 1] * 10)[p]).tolist() for p in parts]
    [[2, 3], [3, 2], [2, 3], [3, 2]]

    Source: [Mansour 2022, §4.1], [Mansour 2023, §3.1].
    """
    number = check_clients(clients, len(labels))
    wanted = client_sizes(sizes, number, len(labels))
    rng = generator(seed, "partition/iid")
    place = rng.random(len(labels))
    if stratified and labels.dtype.kind in "iu":
        order = np.lexsort((place, labels))
        counts = np.bincount(labels)
        rank = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
        spread = (rank + np.repeat(rng.random(len(counts)), counts)) / np.repeat(
            counts, counts
        )
        place[order] = spread
    return cut(np.argsort(place, kind="stable").astype(np.int64), wanted)
