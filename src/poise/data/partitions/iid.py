"""`iid`: everyone sees the same world."""

from __future__ import annotations

import numpy as np

from poise.core.rng import generator
from poise.core.types import Ints
from poise.data.partitions.common import Labels, Sizes, check_clients, client_sizes, cut


def iid(
    labels: Labels, clients: int, seed: int = 0, *, sizes: Sizes = None, stratified: bool = True
) -> list[Ints]:
    """Every client gets the label distribution of the whole set.

    The samples of each class are spread evenly over a line, (rank + u_c)/n_c with u_c ~ U(0, 1),
    and the line is cut into clients: class counts are those of the whole set up to rounding,
    whatever the sizes. All samples are dealt unless ``sizes`` ask for fewer.

    Args:
        labels: (n,); floating labels are dealt in random order.
        clients: number of clients.
        seed: names the random stream.
        sizes: None for equal sizes, a number, one size per client, or ``(count, size)`` pairs.
        stratified: False deals a plain random permutation: the same distribution in law only.

    >>> parts = iid(np.array([0, 1] * 10), 4)
    >>> [np.bincount(np.array([0, 1] * 10)[p]).tolist() for p in parts]
    [[2, 3], [3, 2], [2, 3], [3, 2]]

    Source: A §4.1, D §3.1.
    """
    number = check_clients(clients, len(labels))
    wanted = client_sizes(sizes, number, len(labels))
    rng = generator(seed, "partition/iid")
    place = rng.random(len(labels))
    if stratified and labels.dtype.kind in "iu":
        order = np.lexsort((place, labels))
        counts = np.bincount(labels)
        rank = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
        spread = (rank + np.repeat(rng.random(len(counts)), counts)) / np.repeat(counts, counts)
        place[order] = spread
    return cut(np.argsort(place, kind="stable").astype(np.int64), wanted)
