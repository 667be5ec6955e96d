"""`by-key`: the clients that the data has by nature."""

from __future__ import annotations

import numpy as np

from poise.core.errors import InvalidOption, require, suggest
from poise.core.rng import generator
from poise.core.types import Ints

_PICKS = ("first", "largest", "random")


def by_key(
    keys: Ints,
    clients: int | None = None,
    seed: int = 0,
    *,
    pick: str = "first",
    min_samples: int = 1,
) -> tuple[list[Ints], Ints]:
    """One client per key (speaker, writer, hospital): its index arrays, and which key each client
    is.

    Args:
        keys: the key of each sample, (n,), whole numbers.
        clients: how many keys to take; None takes all. The samples of the others are dealt to
            nobody.
        seed: names the random stream of ``pick="random"``.
        pick: which keys: the ``first``, the ``largest`` (ties to the first), or ``random`` ones.
        min_samples: keys with fewer samples are left out.

    >>> parts, chosen = by_key(np.array([7, 3, 7, 3, 7]))
    >>> [p.tolist() for p in parts], chosen.tolist()
    ([[1, 3], [0, 2, 4]], [3, 7])

    Source: E §2.4 (roles of Shakespeare), C §3.4.2.
    """
    order = np.argsort(keys, kind="stable").astype(np.int64)
    values, sizes = np.unique(keys, return_counts=True)
    parts = np.split(order, np.cumsum(sizes)[:-1])
    kept = np.flatnonzero(sizes >= min_samples)
    require(
        len(kept) > 0,
        f"by-key: no key has {min_samples} samples",
        f"the largest has {sizes.max()}",
        where="min_samples",
    )
    wanted = len(kept) if clients is None else int(clients)
    require(wanted >= 1, f"clients = {clients!r} must be at least 1", where="clients")
    require(
        wanted <= len(kept),
        f"by-key: {wanted} clients were asked for, but there are {len(kept)} keys",
        where="clients",
    )
    if pick not in _PICKS:
        raise InvalidOption(
            f"by-key: pick = {pick!r} is not known", suggest(str(pick), _PICKS), where=("pick",)
        )
    if pick == "largest":
        kept = np.sort(kept[np.argsort(-sizes[kept], kind="stable")[:wanted]])
    elif pick == "random":
        kept = np.sort(generator(seed, "partition/by-key").choice(kept, wanted, replace=False))
    kept = kept[:wanted]
    return [parts[k] for k in kept], values[kept].astype(np.int64)
