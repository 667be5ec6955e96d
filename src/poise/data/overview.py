"""The summary of a federation as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from poise.data.federation_data import Federation

_MOST_COUNTED = 1_000


def describe(fed: Federation) -> str:
    """Describe source, partition, sizes, classes, test data, corruptions: one per line.

    >>> from poise.data import federation
    >>> print(describe(federation("digits", clients=4)))  # doctest: +ELLIPSIS
    digits: 1,438 training samples of shape (1, 8, 8), 10 classes; 359 held out
    iid over 4 clients, seed 0; sizes 359 to 360, median 359.5, 1,438 in all
    ...
    """
    lines = [_source(fed), _sizes(fed)]
    if fed.classes and fed.clients <= _MOST_COUNTED and not fed.on_demand:
        held = (fed.label_counts() > 0).sum(axis=1)
        lines.append(
            f"classes per client: {held.min()} to {held.max()}, mean {held.mean():.1f}"
        )
    if fed.client_tests is not None:
        lines.append(
            f"own test samples: {len(fed.client_tests[1].flat):,} over all clients"
        )
    if fed.assumed:
        lines.append(fed.assumed)
    if fed.public_mean:
        lines.append(f"centred: minus the {fed.public_mean}")
    lines += [f"corrupted: {corruption}" for corruption in fed.corruptions]
    if fed.source.notes:
        lines.append(f"note: {fed.source.notes}")
    return "\n".join(lines)


def _source(fed: Federation) -> str:
    held = fed.test_shard
    out = f"{len(held.rows):,} held out" if held else "none held out"
    name = fed.source.name
    count = len(fed.source)
    return (
        f"{name}: {count:,} training samples of {fed.source.train.form}, "
        f"{kind_of_labels(fed)}; {out}"
    )


def kind_of_labels(fed: Federation) -> str:
    """Return the number of classes as words, or ``regression``."""
    pool = fed.source.train
    if pool.element_classes:
        return f"{pool.element_classes} classes for each of {pool.target_shape} labels"
    if fed.classes:
        return f"{fed.classes} classes"
    if pool.target_shape:
        return f"targets of shape {pool.target_shape}"
    return "regression"


def _sizes(fed: Federation) -> str:
    start = f"{fed.partition} over {fed.clients:,} clients, seed {fed.seed}; "
    if fed.holdings.equal_size is not None:
        return f"{start}{fed.holdings.equal_size} samples each, made on demand"
    sizes = fed.sizes
    middle = np.median(sizes)
    return (
        f"{start}sizes {sizes.min()} to {sizes.max()}, median {middle:g}, "
        f"{sizes.sum():,} in all"
    )
