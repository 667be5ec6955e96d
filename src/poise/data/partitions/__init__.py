"""Partition rules by name.

A rule is a pure function ``(labels, clients, seed, **options)`` that returns one int64
index array per client. The same arguments give the same federation, no sample has two
owners, and every client owns at least one sample. The docstring of a rule states which
samples stay without an owner. ``by-key`` takes keys in place of labels and also returns
the key of each client.
"""

from __future__ import annotations

from collections.abc import Callable

from poise.core.types import Ints
from poise.data.partitions.by_key import by_key
from poise.data.partitions.dirichlet import dirichlet
from poise.data.partitions.dirichlet_by_class import dirichlet_by_class
from poise.data.partitions.iid import iid
from poise.data.partitions.imbalanced import imbalanced
from poise.data.partitions.one_class import one_class
from poise.data.partitions.shards import shards

PARTITIONS: dict[str, Callable[..., list[Ints]]] = {
    "dirichlet": dirichlet,
    "dirichlet-by-class": dirichlet_by_class,
    "iid": iid,
    "imbalanced": imbalanced,
    "one-class": one_class,
    "shards": shards,
}

__all__ = ["PARTITIONS", "by_key"]
