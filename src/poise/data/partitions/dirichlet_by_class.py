"""`dirichlet-by-class`: the shares of every class are spread over the clients."""

from __future__ import annotations

import numpy as np

from poise.core.errors import require
from poise.core.rng import generator
from poise.core.types import Floats, Ints
from poise.data.apportionment import largest_remainders
from poise.data.partitions.common import (
    Labels,
    check_classes,
    check_clients,
    deal_classes,
    shuffled_by_class,
)

_FLOOR = 1e-9


def dirichlet_by_class(
    labels: Labels, clients: int, seed: int = 0, *, kappa: float = 1.0, phi2: float = 0.0
) -> list[Ints]:
    """Class c is shared among the clients as Dir(κ·1); client sizes are LogNormal(ln(n/N), φ²).

    Both wishes at once: the matrix of asked shares is scaled by rows and columns in turn until its
    rows sum to the drawn sizes and its columns to the class sizes (iterative proportional fitting),
    which keeps the odds between clients and classes, that is the asked imbalance, and deals every
    sample. Columns are then rounded by largest remainders, so a size is met up to about one sample
    per class. Where a tiny κ leaves no matrix with these margins, class sizes win.

    Args:
        labels: (n,) classes.
        clients: number of clients N.
        seed: names the random stream.
        kappa: concentration κ > 0; ``inf`` is perfect class balance. (The paper plots κ⁻¹.)
        phi2: variance φ² >= 0 of the logarithm of the sizes; 0 is equal sizes.

    >>> y = np.arange(60) % 3
    >>> [np.bincount(y[p]).tolist() for p in dirichlet_by_class(y, 2, kappa=float("inf"))]
    [[10, 10, 10], [10, 10, 10]]

    Source: C §3.4.1.
    """
    number, classes = (
        check_clients(clients, len(labels)),
        check_classes(labels, "dirichlet-by-class"),
    )
    require(
        kappa > 0,
        f"dirichlet-by-class: kappa = {kappa!r} must be positive",
        "use inf for balanced classes",
        where="kappa",
    )
    require(
        0 <= phi2 < np.inf,
        f"dirichlet-by-class: phi2 = {phi2!r} must not be negative",
        where="phi2",
    )
    rng = generator(seed, "partition/dirichlet-by-class")
    order, starts = shuffled_by_class(labels, classes, rng)
    room = np.diff(starts)
    sizes = np.exp(rng.normal(0.0, phi2**0.5, number))
    sizes *= len(labels) / sizes.sum()
    asked = _fitted(_shares(kappa, classes, number, rng), room.astype(np.float64), sizes)
    counts = largest_remainders(asked / asked.sum(axis=1, keepdims=True), room).T
    return deal_classes(_everyone(counts), order, starts)


def _shares(kappa: float, classes: int, clients: int, rng: np.random.Generator) -> Floats:
    """The share of each client in each class, (classes, clients), kept away from 0."""
    if np.isinf(kappa):
        return np.full((classes, clients), 1 / clients)
    gamma = np.log(rng.gamma(kappa + 1, size=(classes, clients)))
    logs = gamma + np.log1p(-rng.random((classes, clients))) / kappa
    powers = np.exp(logs - logs.max(axis=1, keepdims=True))
    shares: Floats = powers / powers.sum(axis=1, keepdims=True)
    return np.maximum(shares, _FLOOR / clients)


def _fitted(shares: Floats, room: Floats, sizes: Floats, rounds: int = 200) -> Floats:
    """Scale columns to ``sizes`` and rows to ``room`` in turn; the rows are exact in the end."""
    table = shares * np.maximum(room, _FLOOR)[:, None]
    for _ in range(rounds):
        table = table * (sizes / table.sum(axis=0))
        table = table * (np.maximum(room, _FLOOR) / table.sum(axis=1))[:, None]
        if np.allclose(table.sum(axis=0), sizes, rtol=1e-3, atol=0.5):
            break
    return table


def _everyone(counts: Ints) -> Ints:
    """Give each empty client one sample of the client that owns most of some class."""
    counts = counts.copy()
    for client in np.flatnonzero(counts.sum(axis=1) == 0):
        richest = int(np.argmax(counts.sum(axis=1)))
        kind = int(np.argmax(counts[richest]))
        counts[richest, kind] -= 1
        counts[client, kind] += 1
    return counts
