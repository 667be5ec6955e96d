"""`shards`: a few contiguous pieces of the label-sorted set for each client."""

from __future__ import annotations

import numpy as np

from poise.core.errors import InvalidOption, require, suggest
from poise.core.rng import generator
from poise.core.types import Ints
from poise.data.partitions.common import (
    Labels,
    Sizes,
    check_classes,
    check_clients,
    client_sizes,
    cut,
    shuffled_by_class,
)

_DEALS = ("even", "random")


def shards(
    labels: Labels,
    clients: int,
    seed: int = 0,
    *,
    shard_size: int | None = None,
    sizes: Sizes = None,
    deal: str = "even",
) -> list[Ints]:
    """Sort by label, cut into shards of ``shard_size``, and deal these at random.

    Every client gets at least one shard; the last shard may be shorter. With
    ``deal="even"`` shard counts differ by at most one. With ``deal="random"`` every
    client gets one shard and the others go to random clients, so sizes differ widely.
    With ``sizes`` the rule lays the shuffled shards end to end and cuts at these sizes
    instead, which may split a shard between two clients.

    Args:
        labels: (n,) classes.
        clients: number of clients.
        seed: the seed of the random stream.
        shard_size: samples per shard; None makes two shards per client.
        sizes: exact client sizes, see `client_sizes`.
        deal: ``even`` or ``random``.

    >>> parts = shards(np.repeat([0, 1, 2, 3], 6), 4, shard_size=3)
    >>> [len(p) for p in parts], max(len(set(np.repeat([0, 1, 2, 3], 6)[p])) for p in parts)
    ([6, 6, 6, 6], 2)

    Source: [Mansour 2022, §4.1], [Mansour 2023, §3.1] (size 200, shard 60 or 100),
    [Fraboni 2023, §6.3.1] (4 shards of 150 each).
    """
    number = check_clients(clients, len(labels))
    classes = check_classes(labels, "shards")
    size = shard_size
    if size is None:
        size = max(1, len(labels) // (2 * number))
    require(
        isinstance(size, int | np.integer) and size >= 1,
        f"shard_size = {size!r} must be at least 1",
        where="shard_size",
    )
    if deal not in _DEALS:
        raise InvalidOption(
            f"shards: unknown deal {deal!r}",
            suggest(str(deal), _DEALS),
            where=("deal",),
        )
    count = -(-len(labels) // int(size))
    require(
        count >= number,
        (
            f"shard_size = {size} makes {count} shards of {len(labels)} samples, too few for "
            f"{number} clients"
        ),
        f"choose shard_size <= {len(labels) // number}",
        where="shard_size",
    )
    rng = generator(seed, "partition/shards")
    order, _ = shuffled_by_class(labels, classes, rng)
    pieces = np.split(order, np.arange(1, count) * int(size))
    shuffled = rng.permutation(count)
    if sizes is not None:
        line = np.concatenate([pieces[shard] for shard in shuffled])
        return cut(line, client_sizes(sizes, number, samples=len(labels)))
    if deal == "even":
        owners = np.arange(count) % number
    else:
        owners = _random_owners(count, number, rng=rng)
    owned: list[list[Ints]] = [[] for _ in range(number)]
    for shard, owner in zip(shuffled, owners, strict=True):
        owned[owner].append(pieces[shard])
    return [np.concatenate(held) for held in owned]


def _random_owners(count: int, clients: int, rng: np.random.Generator) -> Ints:
    return np.concatenate(
        [np.arange(clients), rng.integers(clients, size=count - clients)]
    )
