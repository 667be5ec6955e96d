"""`dirichlet`: random class proportions for every client."""

from __future__ import annotations

import numpy as np

from poise.core.errors import require
from poise.core.rng import generator, keys, words
from poise.core.types import Floats, Ints
from poise.data.apportionment import apportion
from poise.data.partitions.common import (
    Labels,
    Sizes,
    check_classes,
    check_clients,
    client_sizes,
    deal_classes,
    shuffled_by_class,
)


def dirichlet(
    labels: Labels,
    clients: int,
    seed: int = 0,
    *,
    alpha: float = 1.0,
    sizes: Sizes = None,
) -> list[Ints]:
    """Give client i exactly ``sizes[i]`` samples in class proportions π_i ~ Dir(α·1).

    α → 0: one class per client; α → ∞: uniform. Counts are rounded by largest
    remainders. No sample has two owners: clients take their samples in random order. If
    a class has run out, a client takes more of the remaining classes, in proportion to
    π_i (or, if π_i is 0 on all of them, to what remains). The last clients therefore
    follow π_i less closely; use ``sizes`` to leave some samples without an owner where
    that matters.

    Args:
        labels: (n,) classes.
        clients: number of clients.
        seed: the seed of the random streams; π_i depends on (seed, i) only.
        alpha: concentration, > 0.
        sizes: exact client sizes, see `client_sizes`; None deals everything equally.

    >>> [len(p) for p in dirichlet(np.arange(40) % 4, 3, alpha=0.1, sizes=[5, 10, 20])]
    [5, 10, 20]

    Source: [Fraboni 2023, §3.6] (10, 30, 30, 20, 10 clients with 100, 250, 500, 750,
    1000 samples), [Hsu 2019].
    """
    number = check_clients(clients, len(labels))
    classes = check_classes(labels, "dirichlet")
    wanted = client_sizes(sizes, number, len(labels))
    rng = generator(seed, "partition/dirichlet")
    order, starts = shuffled_by_class(labels, classes, rng)
    shares = proportions(seed, np.arange(number), alpha, classes)
    left = np.diff(starts)
    counts = np.zeros((number, classes), dtype=np.int64)
    for i in rng.permutation(number):
        counts[i] = apportion(shares[i : i + 1], wanted[i : i + 1], left[None])[0]
        left = left - counts[i]
    return deal_classes(counts, order, starts)


def proportions(seed: int, clients: Ints, alpha: float, classes: int) -> Floats:
    """Draw π_i ~ Dir(α·1) for many clients, (m, classes), each from (seed, client).

    Gamma variables are drawn by inversion, in logarithms: G_α = G_{α+1} U^{1/α}, so
    that a tiny α does not underflow.

    >>> shares = proportions(0, np.arange(3), 0.5, 4)
    >>> bool(np.allclose(shares.sum(1), 1))
    True
    >>> bool((shares[2] == proportions(0, np.array([2]), 0.5, 4)).all())
    True
    """
    from scipy.special import gammaincinv

    require(
        bool(np.isfinite(alpha)) and alpha > 0,
        f"dirichlet: alpha = {alpha!r} must be positive and finite",
        where="alpha",
    )
    draws = words(keys(seed, "dirichlet", clients), 2 * classes)
    uniform = ((draws >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    logs = (
        np.log(gammaincinv(alpha + 1, uniform[:, :classes]))
        + np.log(uniform[:, classes:]) / alpha
    )
    powers = np.exp(logs - logs.max(axis=1, keepdims=True))
    shares: Floats = powers / powers.sum(axis=1, keepdims=True)
    return shares
