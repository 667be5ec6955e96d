"""`arrays`: a source from the user's arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from poise.core.arrays import array_of
from poise.core.errors import InvalidOption, require, suggest
from poise.core.rng import generator
from poise.core.samples import Samples
from poise.data.sources.source import Source
from poise.data.splits import held_out, share_of

LARGEST = float(np.finfo(np.float32).max)
MOST_CLASSES = 1_000_000

Pair = tuple[ArrayLike, ArrayLike]


def arrays(
    data: Pair,
    test: Pair | None = None,
    test_share: float = 0.0,
    keys: ArrayLike | None = None,
    classes: int | None = None,
    normalize: str | None = None,
    vocabulary: int | None = None,
) -> Source:
    """Return a source of ``(x, y)``: classification for integers y, else regression.

    uint8 features are stored as bytes and reach the model as x/255; all others are
    float32. NaN and infinity raise `InvalidOption`.

    Args:
        data: features (n, …) and labels (n,).
        test: held-out ``(x, y)``.
        test_share: without ``test``, the share of the samples (of each class) to hold
            out.
        keys: the natural owner of each sample, for the partition ``by-key``; any
            sortable values.
        classes: number of classes, if y may lack the last ones.
        normalize: for uint8 features ``unit`` (x/255, the default) or ``none``.
        vocabulary: x holds token numbers 0 … vocabulary - 1 (text), not quantities.

    >>> source = arrays((np.zeros((4, 2)), [0, 1, 0, 1]))
    >>> source.train.classes, source.train.shape
    (2, (2,))
    """
    require(
        test is None or test_share == 0,
        "test and test_share are both given",
        "give one of them",
        where="test",
    )
    x, y = _pair(data, "source")
    given = None
    labels = [y]
    if test is not None:
        given = _pair(test, "test")
        labels.append(given[1])
    count = _classes(labels, classes)
    owners = None
    if keys is not None:
        owners = array_of(keys, "keys")
        require(
            owners.shape == (len(x),),
            f"keys must be one per sample, ({len(x)},)",
            where="keys",
        )
    if given is None and test_share:
        groups = y
        if not count:
            groups = np.zeros(len(y), np.int64)
        out = held_out(
            groups, share_of(test_share, "test_share"), generator(0, "arrays/test")
        )
        given = x[out], y[out]
        x = x[~out]
        y = y[~out]
        if owners is not None:
            owners = owners[~out]
    train_pool = _pool(x, y, classes=count, normalize=normalize, vocabulary=vocabulary)
    test_pool = None
    if given is not None:
        test_pool = _pool(
            *given, classes=count, normalize=normalize, vocabulary=vocabulary
        )
    if test_pool is not None and test_pool.shape != train_pool.shape:
        raise InvalidOption(
            (
                f"test samples have shape {test_pool.shape}, training samples "
                f"{train_pool.shape}"
            ),
            where=("test",),
        )
    if owners is None:
        return Source("arrays", train_pool, test_pool)
    names, numbers = _numbered(owners)
    return Source("arrays", train_pool, test_pool, keys=numbers, key_names=names)


def _numbered(owners: NDArray[Any]) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    values, numbers = np.unique(owners, return_inverse=True)
    return tuple(str(value) for value in values), numbers.astype(np.int64)


def _pair(
    data: tuple[ArrayLike, ArrayLike], name: str
) -> tuple[NDArray[Any], NDArray[Any]]:
    require(
        isinstance(data, tuple | list) and len(data) == 2,
        f"{name} must be a pair (x, y) of arrays",
    )
    x = array_of(data[0], f"{name}: x")
    y = array_of(data[1], f"{name}: y")
    require(
        x.ndim >= 1 and y.ndim == 1,
        f"{name}: x must be (n, …) and y (n,), not {x.shape} and {y.shape}",
    )
    require(len(x) == len(y), f"{name}: {len(x)} samples but {len(y)} labels")
    require(len(x) > 0, f"{name}: no samples")
    require(x.size > 0, f"{name}: samples of shape {x.shape[1:]} have no entries")
    for letter, values in (("x", x), ("y", y)):
        numeric = values.dtype.kind in "biuf"
        require(numeric, f"{name}: {letter} must be numbers, not {values.dtype}")
        infinite = ~np.isfinite(values.reshape(len(values), -1)).all(axis=1)
        row = int(np.argmax(infinite))
        require(not infinite.any(), f"{name}: {letter} is not finite in row {row}")
        if values.dtype.kind == "f" and values.itemsize > 4:
            largest = float(max(values.max(), -values.min()))
            require(
                largest <= LARGEST,
                f"{name}: {letter} contains ±{largest:g}, too large for single precision",
                "divide the values by a constant",
            )
    return x, y


def _classes(labels: list[NDArray[Any]], classes: int | None) -> int:
    """Return the number of classes; 0 for regression."""
    if any(y.dtype.kind == "f" for y in labels):
        require(
            classes is None,
            "classes is given, but the labels are not whole numbers",
            where="classes",
        )
        return 0
    low = min(int(y.min()) for y in labels)
    high = max(int(y.max()) for y in labels)
    require(
        low >= 0,
        f"labels start at {low}",
        "classes are 0, 1, 2, …; use floats for regression",
    )
    require(
        high < MOST_CLASSES,
        f"there is a label {high}, and a task has at most {MOST_CLASSES} classes",
        "number the classes 0, 1, 2, …; use floats for regression",
    )
    require(
        classes is None
        or (isinstance(classes, int | np.integer) and classes <= MOST_CLASSES),
        f"classes = {classes!r} must be a whole number up to {MOST_CLASSES}",
        where="classes",
    )
    require(
        classes is None or classes > high,
        f"classes = {classes}, but there is a label {high}",
        where="classes",
    )
    if classes is None:
        return high + 1
    return int(classes)


def _pool(
    x: NDArray[Any],
    y: NDArray[Any],
    classes: int,
    normalize: str | None,
    vocabulary: int | None,
) -> Samples:
    labels = torch.from_numpy(np.array(y, dtype=np.int64 if classes else np.float32))
    if vocabulary is not None:
        return Samples(
            _tokens(x, vocabulary),
            labels,
            tokens=True,
            classes=classes,
            vocabulary=vocabulary,
        )
    bytes_ = x.dtype == np.uint8
    if normalize not in (None, "none", "unit") or (normalize == "unit" and not bytes_):
        raise InvalidOption(
            f"normalize = {normalize!r} does not fit {x.dtype} arrays",
            suggest(str(normalize), ["none", "unit"]),
            where=("normalize",),
        )
    raw = torch.from_numpy(
        np.array(x, dtype=np.uint8 if bytes_ else np.float32, order="C")
    )
    scale = 1 / 255 if bytes_ and normalize != "none" else 1.0
    return Samples(raw, labels, scale, classes=classes)


def _tokens(x: NDArray[Any], vocabulary: int) -> torch.Tensor:
    require(x.dtype.kind in "iu", f"token numbers must be whole numbers, not {x.dtype}")
    low = int(x.min())
    high = int(x.max())
    require(
        low >= 0 and high < vocabulary,
        f"tokens go from {low} to {high}, vocabulary = {vocabulary}",
        where="vocabulary",
    )
    dtype = np.uint8 if vocabulary <= 256 else np.int32
    return torch.from_numpy(np.array(x, dtype=dtype, order="C"))
