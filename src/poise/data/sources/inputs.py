"""Features as a user gives them: one array, several inputs, or texts to collate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from poise.core.arrays import array_of
from poise.core.errors import InvalidOption, require, suggest
from poise.core.labels import IGNORED
from poise.core.samples import Samples, SeveralInputs
from poise.core.trees import leaves, mapped
from poise.data.blocks import row_not_finite, tensor_of
from poise.data.sources.targets import Targets

LARGEST = float(np.finfo(np.float32).max)

Features: TypeAlias = NDArray[Any] | tuple[NDArray[Any], ...] | dict[str, NDArray[Any]]
Collate: TypeAlias = Callable[[list[NDArray[Any]]], Any]
"""All samples of a list -> one array, or a tuple or dict of arrays, (n, …) each."""


# texts of different lengths
# ---------------------------------------------------------------------------------


def padded(rows: Sequence[NDArray[Any]], fill: int = 0) -> NDArray[Any]:
    """Return rows of different lengths as one array, filled up at the end.

    >>> padded([np.array([4, 5]), np.array([6])]).tolist()
    [[4, 5], [6, 0]]
    """
    length = max(len(row) for row in rows)
    table = np.full((len(rows), length), fill, dtype=np.int64)
    for place, row in zip(table, rows, strict=True):
        place[: len(row)] = row
    return table


def _with_mask(rows: list[NDArray[Any]]) -> Features:
    lengths = _lengths(rows)
    table = padded(rows)
    return table, np.arange(table.shape[1]) < lengths[:, None]


def _with_length(rows: list[NDArray[Any]]) -> Features:
    return padded(rows), _lengths(rows)


def _lengths(rows: list[NDArray[Any]]) -> NDArray[np.int64]:
    return np.array([len(row) for row in rows])


COLLATES: dict[str, Collate] = {
    "mask": _with_mask,
    "length": _with_length,
    "pad": padded,
}


def collated(features: list[Sequence[Any]], collate: str | Collate) -> list[Features]:
    """Bring the texts of training and test data to one length.

    Returns:
        ``mask``: tokens and a mask (1 for tokens, 0 for padding); ``length``: tokens
        and lengths; ``pad``: tokens; or the arrays that a function makes of the list.
    """
    rows: list[NDArray[Any]] = []
    for given in features:
        rows += token_rows(given, "x")
    function = collate
    if isinstance(function, str):
        if function not in COLLATES:
            raise InvalidOption(
                f"collate = {function!r} is unknown",
                suggest(function, COLLATES),
                where=("collate",),
            )
        function = COLLATES[function]
    try:
        joined = function(rows)
    except Exception as error:  # the function is the user's: it may raise anything
        raise InvalidOption(
            f"collate fails: {type(error).__name__}: {error}", where=("collate",)
        ) from error
    joined = mapped(lambda part: array_of(part, "x"), joined)
    for part in leaves(joined):
        require(
            part.ndim >= 1 and len(part) == len(rows),
            f"collate returns shape {part.shape} for {len(rows)} samples",
            "return one row per sample",
            where="collate",
        )
    ends = np.cumsum([len(given) for given in features])[:-1]
    parts = mapped(lambda part: np.split(part, ends), joined)
    return [
        mapped(lambda part, k=k: part[k], parts)  # type: ignore[misc]
        for k in range(len(features))
    ]


def token_rows(given: Sequence[Any], name: str) -> list[NDArray[Any]]:
    """Return the texts of a list, one array of whole numbers each."""
    rows = [array_of(row, f"{name}: text {k}") for k, row in enumerate(given)]
    for k, row in enumerate(rows):
        require(
            row.ndim == 1 and row.dtype.kind in "iu" and len(row) > 0,
            f"{name}: text {k} is {row.dtype} of shape {row.shape}",
            "collate needs a list of arrays of token numbers, one per sample",
            where="collate",
        )
    return rows


def collated_labels(labels: list[Any]) -> list[Any]:
    """Fill labels of different lengths up with `IGNORED`; other labels stay."""
    lists = [given for given in labels if _ragged(given)]
    if not lists:
        return labels
    rows = [token_rows(given, "y") for given in labels]
    table = padded([row for given in rows for row in given], fill=IGNORED)
    return np.split(table, np.cumsum([len(given) for given in rows])[:-1])


def _ragged(given: Any) -> bool:
    if not isinstance(given, list | tuple) or not len(given):
        return isinstance(given, np.ndarray) and given.dtype == object
    lengths = {len(row) for row in given if np.ndim(row) == 1}
    return len(lengths) > 1 or (len(lengths) == 1 and isinstance(given, list))


# one or several arrays
# --------------------------------------------------------------------------------------


def feature_arrays(
    values: Any, samples: int, name: str, collated: bool = False
) -> Features:
    """Return one array, or a tuple or dict of arrays.

    A tuple holds several inputs if each part has one row per sample, or if a collate
    made it.
    """
    if isinstance(values, Mapping):
        require(
            len(values) > 0 and all(isinstance(key, str) for key in values),
            f"{name}: the inputs in a dict need names",
        )
        return {key: array_of(part, f"{name}[{key!r}]") for key, part in values.items()}
    if isinstance(values, tuple) and (collated or _inputs(values, samples)):
        return tuple(array_of(part, f"{name}[{k}]") for k, part in enumerate(values))
    return array_of(values, name)


def _inputs(values: tuple[Any, ...], samples: int) -> bool:
    arrays = all(isinstance(part, np.ndarray | torch.Tensor) for part in values)
    return (
        arrays
        and len(values) != samples
        and all(part.ndim and len(part) == samples for part in values)
    )


def check_numbers(values: NDArray[Any], name: str) -> None:
    """Raise unless the values are finite numbers in the range of float32."""
    numeric = values.dtype.kind in "biuf"
    require(numeric, f"{name} must be numbers, not {values.dtype}")
    row = row_not_finite(values)
    require(row is None, f"{name} is not finite in row {row}")
    if values.dtype.kind == "f" and values.itemsize > 4:
        largest = float(max(values.max(), -values.min()))
        require(
            largest <= LARGEST,
            f"{name} contains ±{largest:g}, too large for single precision",
            "divide the values by a constant",
        )


def pool_of(
    x: Features,
    labels: torch.Tensor,
    targets: Targets,
    normalize: str | None,
    vocabulary: int | None,
) -> Samples:
    """Return the pool of these features and labels.

    Single arrays of whole numbers are quantities unless there is a vocabulary. Among
    several inputs they stay whole numbers.
    """
    if isinstance(x, np.ndarray):
        return _pool(x, labels, targets, normalize=normalize, vocabulary=vocabulary)
    parts = []
    for part in leaves(x):
        tokens = part.dtype.kind in "iu" and part.dtype != np.uint8
        words = int(part.max()) + 1 if tokens else None
        if tokens and vocabulary is not None:
            words = max(words or 0, vocabulary)
        scaling = normalize if part.dtype == np.uint8 else None
        parts.append(_pool(part, labels, targets, normalize=scaling, vocabulary=words))
    return SeveralInputs.of(tuple(parts), tuple(x) if isinstance(x, dict) else ())


def _pool(
    x: NDArray[Any],
    labels: torch.Tensor,
    targets: Targets,
    normalize: str | None,
    vocabulary: int | None,
) -> Samples:
    if vocabulary is not None:
        return Samples(
            _tokens(x, vocabulary),
            labels,
            tokens=True,
            classes=targets.classes,
            vocabulary=vocabulary,
            element_classes=targets.element_classes,
            multi_label=targets.multi_label,
        )
    bytes_ = x.dtype == np.uint8
    if normalize not in (None, "none", "unit") or (normalize == "unit" and not bytes_):
        raise InvalidOption(
            f"normalize = {normalize!r} does not fit {x.dtype} arrays",
            suggest(str(normalize), ["none", "unit"]),
            where=("normalize",),
        )
    return Samples(
        tensor_of(x, np.uint8 if bytes_ else np.float32),
        labels,
        scale=1 / 255 if bytes_ and normalize != "none" else 1.0,
        classes=targets.classes,
        element_classes=targets.element_classes,
        multi_label=targets.multi_label,
    )


def _tokens(x: NDArray[Any], vocabulary: int) -> torch.Tensor:
    require(x.dtype.kind in "iu", f"token numbers must be whole numbers, not {x.dtype}")
    low = int(x.min())
    high = int(x.max())
    require(
        low >= 0 and high < vocabulary,
        f"tokens go from {low} to {high}, vocabulary = {vocabulary}",
        "tokens are numbers from 0 to vocabulary - 1",
        where="vocabulary",
    )
    dtype = np.uint8 if vocabulary <= 256 else np.int32
    return tensor_of(x, dtype)
