"""`arrays`: a source from the user's arrays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from poise.core.arrays import array_of
from poise.core.errors import require
from poise.core.rng import generator
from poise.core.samples import Samples
from poise.core.trees import leaves, mapped
from poise.core.types import Ints
from poise.data.blocks import is_mapped
from poise.data.sources.inputs import (
    Collate,
    Features,
    check_numbers,
    collated,
    collated_labels,
    feature_arrays,
    pool_of,
)
from poise.data.sources.source import Source
from poise.data.sources.targets import Classes, Target, interpreted, label_array
from poise.data.splits import held_out, share_of

Pair = tuple[Any, Any]
"""Features and labels: arrays, or tuples and dicts of arrays."""


def arrays(
    data: Pair,
    test: str | Any = None,
    test_share: float = 0.0,
    keys: ArrayLike | None = None,
    classes: Classes | None = None,
    normalize: str | None = None,
    vocabulary: int | None = None,
    *,
    target: Target | None = None,
    collate: str | Collate | None = None,
    by: ArrayLike | None = None,
) -> Source:
    """Return a source of ``(x, y)``: classification for integers y, else regression.

    uint8 features are stored as bytes and reach the model as x/255; all others are
    float32. NaN and infinity raise `InvalidOption`. Memory-mapped features stay on disk.
    Several inputs are a tuple or dict of arrays (n, …); whole numbers among them stay
    whole numbers. Texts in y are numbered in alphabetical order.

    Args:
        data: features (n, …) and labels (n,) or (n, …). -100 marks entries of integer
            labels (n, …) to ignore.
        test: held-out ``(x, y)``; `poise.federation` also takes other kinds of data.
        test_share: without ``test``, the share of the samples (of each class) to hold
            out.
        keys: the natural owner of each sample, for the partition ``by-key``; any
            sortable values.
        classes: number of classes, if y may lack the last ones, or their names in
            order.
        normalize: for uint8 features ``unit`` (x/255, the default) or ``none``.
        vocabulary: x holds token numbers 0 … vocabulary - 1 (text), not quantities.
        target: ``classes``, ``numbers`` or ``multi-label``, if the type of y does not
            say it.
        collate: for a list of texts of different lengths: ``mask``, ``length``,
            ``pad``, or a function of the list that returns arrays.
        by: a group for each sample, (n,), for partitions that need one class per
            sample.

    >>> source = arrays((np.zeros((4, 2)), [0, 1, 0, 1]))
    >>> source.train.classes, source.train.shape
    (2, (2,))
    >>> arrays((np.zeros((2, 8, 8)), np.zeros((2, 8, 8), int)), classes=3).train.outputs
    3
    """
    require(
        test is None or test_share == 0,
        "test and test_share are both given",
        "give one of them",
        where="test",
    )
    given: dict[str, Any] = {"source": data}
    if test is not None:
        given["test"] = test
    for name, pair in given.items():
        require(
            isinstance(pair, tuple | list) and len(pair) == 2,
            f"{name} must be a pair (x, y) of arrays",
        )
    pairs = [
        _pair(*pair, name, collated=collate is not None)
        for name, pair in _collated(given, collate).items()
    ]
    labels, targets = interpreted([y for _, y in pairs], classes, target)
    features = [x for x, _ in pairs]
    if vocabulary is None and collate is not None:
        vocabulary = _vocabulary(features)
    owners = _per_sample(keys, len(labels[0]), "keys")
    groups = _per_sample(by, len(labels[0]), "by")
    if groups is not None:
        groups = np.unique(groups, return_inverse=True)[1].astype(np.int64)
    out = None
    if test_share:
        strata = groups
        if strata is None:
            strata = np.zeros(len(labels[0]), np.int64)
            if targets.classes:
                strata = labels[0]
        share = share_of(test_share, "test_share")
        out = held_out(strata, share, generator(0, "arrays/test"))
        owners = None if owners is None else owners[~out]
        groups = None if groups is None else groups[~out]

    def pool(x: Features, y: NDArray[Any]) -> Samples:
        return pool_of(
            x,
            torch.from_numpy(np.ascontiguousarray(y)),
            targets,
            normalize=normalize,
            vocabulary=vocabulary,
        )

    if out is not None and is_mapped(features[0]):  # leave the rows where they are
        train = pool(features[0], labels[0])
        source = Source(
            "arrays", train, train, np.flatnonzero(~out), np.flatnonzero(out)
        )
    elif out is not None:
        source = Source(
            "arrays",
            pool(_rows(features[0], ~out), labels[0][~out]),
            pool(_rows(features[0], out), labels[0][out]),
        )
    else:
        source = Source("arrays", pool(features[0], labels[0]))
        if len(features) > 1:
            source = replace(source, test=pool(features[1], labels[1]))
            _check_alike(source.train, source.test)
    if owners is not None:
        names, numbers = _numbered(owners)
        source = replace(source, keys=numbers, key_names=names)
    return replace(source, own=True, groups=groups, class_names=targets.names)


def _check_alike(train: Samples, test: Samples | None) -> None:
    """Raise unless training and test samples have the same form."""
    if test is None:
        return
    for name, own, other in (
        ("samples", test.form, train.form),
        ("labels", test.target_shape, train.target_shape),
    ):
        require(
            own == other,
            f"test {name} have {own}, training {name} {other}",
            where="test",
        )


def _collated(given: dict[str, Pair], collate: str | Collate | None) -> dict[str, Pair]:
    """Return the pairs with texts and their labels brought to one length."""
    if collate is None:
        return given
    features = collated([pair[0] for pair in given.values()], collate)
    labels = collated_labels([pair[1] for pair in given.values()])
    pairs = zip(features, labels, strict=True)
    return dict(zip(given, pairs, strict=True))


def _vocabulary(features: list[Features]) -> int | None:
    """Return the number of tokens of single arrays of whole numbers, else None."""
    if not all(isinstance(x, np.ndarray) and x.dtype.kind in "iu" for x in features):
        return None
    return 1 + max(int(part.max()) for x in features for part in leaves(x))


def _per_sample(
    values: ArrayLike | None, samples: int, name: str
) -> NDArray[Any] | None:
    if values is None:
        return None
    array = array_of(values, name)
    require(
        array.shape == (samples,),
        f"{name} must be one per sample, ({samples},)",
        where=name,
    )
    return array


def _rows(x: Features, marked: NDArray[np.bool_]) -> Features:
    chosen: Features = mapped(lambda part: part[marked], x)
    return chosen


def _numbered(owners: NDArray[Any]) -> tuple[tuple[str, ...], Ints]:
    values, numbers = np.unique(owners, return_inverse=True)
    return tuple(str(value) for value in values), numbers.astype(np.int64)


def _pair(
    features: Any, labels: Any, name: str, collated: bool
) -> tuple[Features, NDArray[Any]]:
    """Return features and labels as arrays after checking them."""
    y = label_array(labels, f"{name}: y")
    require(y.ndim >= 1, f"{name}: y must be (n, …), not a {type(labels).__name__}")
    x = feature_arrays(features, len(y), f"{name}: x", collated)
    for part in leaves(x):
        require(
            part.ndim >= 1,
            f"{name}: x must be (n, …) and y (n, …), not {part.shape} and {y.shape}",
        )
        require(len(part) == len(y), f"{name}: {len(part)} samples but {len(y)} labels")
        require(len(part) > 0, f"{name}: no samples")
        require(
            part.size > 0, f"{name}: samples of shape {part.shape[1:]} have no entries"
        )
        check_numbers(part, f"{name}: x")
    require(y.size > 0, f"{name}: labels of shape {y.shape[1:]} have no entries")
    if y.dtype.kind not in "US":
        check_numbers(y, f"{name}: y")
    return x, y
