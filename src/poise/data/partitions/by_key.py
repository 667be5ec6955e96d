"""`by-key`: one client per natural owner of the data."""

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
    """Return the index array of each client (speaker, writer, …), and its key.

    Args:
        keys: the key of each sample, (n,), whole numbers.
        clients: how many keys to take; None takes all. The samples of other keys get no
            owner.
        seed: the seed of ``pick="random"``.
        pick: take the ``first`` keys, the ``largest`` (ties to the first), or
            ``random`` ones.
        min_samples: skip keys with fewer samples.

    >>> parts, chosen = by_key(np.array([7, 3, 7, 3, 7]))
    >>> [p.tolist() for p in parts], chosen.tolist()
    ([[1, 3], [0, 2, 4]], [3, 7])

    Source: [Fraboni 2023, §2.4] (roles of Shakespeare), [Buttaci 2024, §3.4.2].
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
    wanted = len(kept)
    if clients is not None:
        wanted = int(clients)
    require(wanted >= 1, f"clients = {clients!r} must be at least 1", where="clients")
    require(
        wanted <= len(kept),
        f"by-key: {wanted} clients, but only {len(kept)} keys",
        where="clients",
    )
    if pick not in _PICKS:
        raise InvalidOption(
            f"by-key: unknown pick {pick!r}",
            suggest(str(pick), _PICKS),
            where=("pick",),
        )
    if pick == "largest":
        kept = np.sort(kept[np.argsort(-sizes[kept], kind="stable")[:wanted]])
    elif pick == "random":
        kept = np.sort(
            generator(seed, "partition/by-key").choice(kept, wanted, replace=False)
        )
    kept = kept[:wanted]
    return [parts[k] for k in kept], values[kept].astype(np.int64)
