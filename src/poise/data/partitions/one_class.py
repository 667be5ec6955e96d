"""`one-class`: a client knows one class only."""

from __future__ import annotations

from typing import Literal

import numpy as np

from poise.core.errors import require
from poise.core.rng import generator
from poise.core.types import Ints
from poise.data.partitions.common import (
    Labels,
    Sizes,
    check_classes,
    check_clients,
    client_sizes,
    deal_classes,
    shuffled_by_class,
)


def one_class(
    labels: Labels,
    clients: int,
    seed: int = 0,
    *,
    sizes: Sizes = None,
    dealt: Literal["in turn", "random"] = "in turn",
) -> list[Ints]:
    """Client i owns samples of class ``i mod C`` only, so class c belongs to N/C clients.

    Without ``sizes`` the owners of a class share all of it equally (sizes one apart at most); with
    fewer clients than classes, the last classes belong to nobody.

    Args:
        labels: (n,) classes; classes without a sample are passed over.
        clients: number of clients.
        seed: names the random stream.
        sizes: exact client sizes, see `client_sizes`.
        dealt: ``random`` gives the same number of clients to every class, in an order that says
            nothing.

    >>> parts = one_class(np.array([0, 1, 0, 1, 0, 1]), 4)
    >>> [np.array([0, 1, 0, 1, 0, 1])[p].tolist() for p in parts]
    [[0, 0], [1, 1], [0], [1]]

    Source: E §3.6 (100 clients, 500 samples each), E §5.5.1 (100 samples each).
    """
    number, classes = (check_clients(clients, len(labels)), check_classes(labels, "one-class"))
    order, starts = shuffled_by_class(labels, classes, generator(seed, "partition/one-class"))
    room = np.diff(starts)
    present = np.flatnonzero(room)
    turns = np.arange(number)
    if dealt == "random":
        turns = generator(seed, "partition/one-class/dealt").permutation(number)
    owner_class = present[turns % len(present)]
    if sizes is None:
        turn = turns // len(present)
        owners = np.bincount(owner_class, minlength=classes)[owner_class]
        wanted = room[owner_class] // owners + (turn < room[owner_class] % owners)
    else:
        wanted = client_sizes(sizes, number, len(labels))
    counts = np.zeros((number, classes), dtype=np.int64)
    counts[np.arange(number), owner_class] = wanted
    _check_room(counts, room, sizes is None)
    return deal_classes(counts, order, starts)


def _check_room(counts: Ints, room: Ints, shared: bool) -> None:
    asked = counts.sum(axis=0)
    over = int(np.argmax(asked - room))
    require(
        asked[over] <= room[over],
        f"one-class: the owners of class {over} ask for {asked[over]} samples, it has {room[over]}",
        "shrink sizes, or use on_demand=True, where clients may share samples",
    )
    empty = np.flatnonzero(counts.sum(axis=1) == 0)
    if shared and len(empty):
        name = int(empty[0])
        require(
            False,
            f"one-class: client {name} would own nothing: its class has too few samples",
            "fewer clients",
        )
