"""`one-class`: samples of a single class for each client."""

from __future__ import annotations

from typing import Literal

import numpy as np

from poise.core.errors import InvalidOption, require
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
    """Give client i samples of class ``i mod C``: class c belongs to N/C clients.

    Without ``sizes`` the owners of a class share all of it equally (sizes at most one
    apart). With fewer clients than classes, the last classes get no owner.

    Args:
        labels: (n,) classes; classes without a sample are skipped.
        clients: number of clients.
        seed: the seed of the random streams.
        sizes: exact client sizes, see `client_sizes`.
        dealt: ``random`` assigns the classes in random order, with as many clients per
            class.

    >>> parts = one_class(np.array([0, 1, 0, 1, 0, 1]), 4)
    >>> [np.array([0, 1, 0, 1, 0, 1])[p].tolist() for p in parts]
    [[0, 0], [1, 1], [0], [1]]

    Source: [Fraboni 2023, §3.6] (100 clients, 500 samples each), [Fraboni 2023, §5.5.1]
    (100 samples each).
    """
    number = check_clients(clients, len(labels))
    classes = check_classes(labels, "one-class")
    order, starts = shuffled_by_class(
        labels, classes, generator(seed, "partition/one-class")
    )
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
    _check_room(counts, room, shared=sizes is None)
    return deal_classes(counts, order, starts)


def _check_room(counts: Ints, room: Ints, shared: bool) -> None:
    needed = counts.sum(axis=0)
    over = int(np.argmax(needed - room))
    require(
        needed[over] <= room[over],
        (
            f"one-class: the owners of class {over} need {needed[over]} samples, it has "
            f"{room[over]}"
        ),
        "choose smaller sizes, or use on_demand=True, where clients may share samples",
    )
    empty = np.flatnonzero(counts.sum(axis=1) == 0)
    if shared and len(empty):
        raise InvalidOption(
            f"one-class: client {empty[0]} would own no sample: its class has too few",
            "choose fewer clients",
        )
