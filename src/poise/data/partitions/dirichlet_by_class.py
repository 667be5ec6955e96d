"""`dirichlet-by-class`: random shares of every class for the clients."""

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
    labels: Labels,
    clients: int,
    seed: int = 0,
    *,
    kappa: float = 1.0,
    phi2: float = 0.0,
) -> list[Ints]:
    """Share class c among clients as Dir(κ·1); client sizes are LogNormal(ln(n/N), φ²).

    To meet both, the rule scales the matrix of drawn shares by rows and columns in turn
    until its rows sum to the drawn sizes and its columns to the class sizes (iterative
    proportional fitting). This keeps the odds between clients and classes, that is the
    drawn imbalance, and deals every sample. Columns are then rounded by largest
    remainders, so a size is met up to about one sample per class. If a tiny κ leaves no
    matrix with these margins, class sizes take precedence.

    Args:
        labels: (n,) classes.
        clients: number of clients N.
        seed: the seed of the random stream.
        kappa: concentration κ > 0; ``inf`` is perfect class balance. (The paper plots
            κ⁻¹.)
        phi2: variance φ² >= 0 of the logarithm of the sizes; 0 is equal sizes.

    >>> y = np.arange(60) % 3
    >>> [np.bincount(y[p]).tolist() for p in dirichlet_by_class(y, 2, kappa=float("inf"))]
    [[10, 10, 10], [10, 10, 10]]

    Source: [Buttaci 2024, §3.4.1].
    """
    number = check_clients(clients, len(labels))
    classes = check_classes(labels, "dirichlet-by-class")
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
    shares = _shares(kappa, classes, clients=number, rng=rng)
    table = _fitted(shares, room.astype(np.float64), sizes=sizes)
    counts = largest_remainders(table / table.sum(axis=1, keepdims=True), room).T
    return deal_classes(_without_empty_clients(counts), order, starts=starts)


def _shares(
    kappa: float, classes: int, clients: int, rng: np.random.Generator
) -> Floats:
    """Draw each client's share of each class, (classes, clients), bounded above 0."""
    if np.isinf(kappa):
        return np.full((classes, clients), 1 / clients)
    gamma = np.log(rng.gamma(kappa + 1, size=(classes, clients)))
    logs = gamma + np.log1p(-rng.random((classes, clients))) / kappa
    powers = np.exp(logs - logs.max(axis=1, keepdims=True))
    shares: Floats = powers / powers.sum(axis=1, keepdims=True)
    return np.maximum(shares, _FLOOR / clients)


def _fitted(shares: Floats, room: Floats, sizes: Floats, rounds: int = 200) -> Floats:
    """Scale columns to ``sizes`` and rows to ``room`` in turn; ends with exact rows."""
    table = shares * np.maximum(room, _FLOOR)[:, None]
    for _ in range(rounds):
        table = table * (sizes / table.sum(axis=0))
        table = table * (np.maximum(room, _FLOOR) / table.sum(axis=1))[:, None]
        if np.allclose(table.sum(axis=0), sizes, rtol=1e-3, atol=0.5):
            break
    return table


def _without_empty_clients(counts: Ints) -> Ints:
    """Give each empty client one sample of the largest client's largest class."""
    counts = counts.copy()
    for client in np.flatnonzero(counts.sum(axis=1) == 0):
        richest = int(np.argmax(counts.sum(axis=1)))
        kind = int(np.argmax(counts[richest]))
        counts[richest, kind] -= 1
        counts[client, kind] += 1
    return counts
