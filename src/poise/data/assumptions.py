"""Say which value a partition took for an option that decides how clients differ."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from poise.data.partitions.imbalanced import RATIOS


class Deciding(NamedTuple):
    """The options of a partition that decide how much clients differ.

    Args:
        options: one of them is enough.
        taken: the value without them, in words; empty if the signature has it.
        effect: what other values do.
    """

    options: tuple[str, ...]
    taken: str
    effect: str


_DRAWN = ", ".join(f"{ratio:g}" for ratio in RATIOS)
DECIDING = {
    "dirichlet": Deciding(
        ("alpha",),
        "",
        "a smaller alpha gives each client fewer classes, a larger one makes clients alike",
    ),
    "dirichlet-by-class": Deciding(
        ("kappa",),
        "",
        "a smaller kappa gives each class to fewer clients, a larger one makes clients alike",
    ),
    "shards": Deciding(
        ("shard_size", "sizes"),
        "two shards per client",
        "set shard_size: smaller shards give each client more classes",
    ),
    "imbalanced": Deciding(
        ("ratio", "ratios"),
        f"ratios = {_DRAWN}, drawn for each client",
        "set ratio or ratios: 1 is balanced, small values are not",
    ),
}
"""By partition."""


def assumption(
    partition: object, rule: Callable[..., Any] | None, given: Mapping[str, Any]
) -> str:
    """Return a sentence about the deciding value that nobody gave; empty if given.

    >>> def dirichlet(labels, clients, *, alpha=1.0): ...
    >>> assumption("dirichlet", dirichlet, {})[:52]
    "no alpha given: partition 'dirichlet' takes alpha = "
    >>> assumption("dirichlet", dirichlet, {"alpha": 0.1})
    ''
    """
    if not isinstance(partition, str) or rule is None:
        return ""
    deciding = DECIDING.get(partition)
    if deciding is None or any(
        given.get(name) is not None for name in deciding.options
    ):
        return ""
    name = deciding.options[0]
    taken = (
        deciding.taken or f"{name} = {inspect.signature(rule).parameters[name].default}"
    )
    return f"no {name} given: partition {partition!r} takes {taken} ({deciding.effect})"


def owners_left_out(source: str, owners: int, clients: int) -> str:
    """Return a sentence about data with owners that nobody asked to keep together.

    >>> owners_left_out("heart-disease", 4, 100)[:49]
    "no partition given: 'heart-disease' has 4 owners,"
    """
    return (
        f"no partition given: {source!r} has {owners} owners, but 'iid' deals its "
        f"samples to {clients} clients at random (partition = 'by-key' makes each owner "
        "a client)"
    )
