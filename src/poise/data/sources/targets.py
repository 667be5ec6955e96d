"""Labels as a user gives them: classes, numbers, several per sample, texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from poise.core.arrays import array_of
from poise.core.errors import InvalidOption, require, suggest
from poise.core.labels import IGNORED

MOST_CLASSES = 1_000_000
TARGETS = ("classes", "numbers", "multi-label")

Target: TypeAlias = Literal["classes", "numbers", "multi-label"]
Classes: TypeAlias = int | Sequence[str]
"""The number of classes, or their names in order."""


@dataclass(frozen=True)
class Targets:
    """The meaning of labels.

    Args:
        classes: number of classes; 0 unless every sample has one class.
        element_classes: number of classes of each entry of labels (n, …).
        names: of the classes; empty if the labels were numbers.
        multi_label: the labels are truth values between 0 and 1.
    """

    classes: int = 0
    element_classes: int = 0
    names: tuple[str, ...] = ()
    multi_label: bool = False


def label_array(values: Any, name: str) -> NDArray[Any]:
    """Return labels as one array (n, …); a tuple of k arrays (n,) becomes (n, k).

    >>> label_array((np.array([3.0, 5.0]), np.array([1, 0])), "y").tolist()
    [[3.0, 1.0], [5.0, 0.0]]
    """
    if isinstance(values, tuple) and _columns(values):
        return np.stack([array_of(part, name) for part in values], axis=1)
    array = array_of(values, name)
    if array.dtype == object and array.size and _texts(array):
        return array.astype(str)
    return array


def _columns(values: tuple[Any, ...]) -> bool:
    shapes = {np.shape(part) for part in values}
    return len(shapes) == 1 and len(next(iter(shapes))) == 1


def _texts(array: NDArray[Any]) -> bool:
    return all(isinstance(value, str) for value in array.ravel())


def interpreted(
    labels: list[NDArray[Any]], classes: Classes | None, target: Target | None
) -> tuple[list[NDArray[Any]], Targets]:
    """Return training and test labels as int64 or float32, and their meaning.

    Whole numbers and texts are classes, floats are numbers. Labels (n, …) of truth
    values are multi-label targets. ``target`` overrules this.
    """
    require(
        target is None or target in TARGETS,
        f"target = {target!r} is unknown",
        suggest(str(target), TARGETS),
        where="target",
    )
    names: tuple[str, ...] = ()
    if any(y.dtype.kind in "US" for y in labels):
        labels, names = _numbered(labels, classes)
        classes = len(names)
    elif classes is not None and not isinstance(classes, int | np.integer):
        names = _class_names(classes)
        classes = len(names)
    kind = target or _guessed(labels)
    if kind == "classes":
        labels = [_classes_of(y) for y in labels]
        count = _count(labels, classes)
        labels = [np.array(y, dtype=np.int64) for y in labels]
        if labels[0].ndim == 1:
            return labels, Targets(classes=count, names=names)
        return labels, Targets(element_classes=count, names=names)
    require(
        classes is None,
        "classes is given, but the labels are not whole numbers",
        "leave classes out, or set target = 'classes'",
        where="classes",
    )
    if kind == "multi-label":
        _check_multi(labels)
    numbers = [np.array(y, dtype=np.float32) for y in labels]
    return numbers, Targets(multi_label=kind == "multi-label")


def _guessed(labels: list[NDArray[Any]]) -> str:
    if any(y.dtype.kind == "f" for y in labels):
        return "numbers"
    if all(y.dtype.kind == "b" and y.ndim > 1 for y in labels):
        return "multi-label"
    return "classes"


def _numbered(
    labels: list[NDArray[Any]], classes: Classes | None
) -> tuple[list[NDArray[Any]], tuple[str, ...]]:
    """Return the number of each text, and the texts in order."""
    texts = [y.astype(str) for y in labels]
    if classes is None or isinstance(classes, int | np.integer):
        known = np.unique(np.concatenate([y.ravel() for y in texts]))
        require(
            classes is None or classes == len(known),
            f"classes = {classes}, but the labels have {len(known)} different texts",
            "give the names of all classes in order, as a list",
            where="classes",
        )
        names = tuple(str(name) for name in known)
    else:
        names = _class_names(classes)
    order = np.argsort(names)
    ordered = np.array(names)[order]
    numbers = []
    for y in texts:
        place = np.minimum(np.searchsorted(ordered, y), len(names) - 1)
        missing = ordered[place] != y
        if missing.any():
            raise InvalidOption(
                f"there is a label {str(y[missing][0])!r}, which classes does not name",
                suggest(str(y[missing][0]), names),
                where=("classes",),
            )
        numbers.append(order[place].astype(np.int64))
    return numbers, names


def _class_names(classes: Sequence[str]) -> tuple[str, ...]:
    names = tuple(classes)
    fits = all(isinstance(name, str) for name in names)
    require(
        fits and len(names) > 0 and len(set(names)) == len(names),
        f"classes = {classes!r} must be a number or different names",
        where="classes",
    )
    return names


def _classes_of(y: NDArray[Any]) -> NDArray[Any]:
    """Return whole numbers; a single column becomes (n,)."""
    if y.dtype.kind == "f":
        fractions = y[y != np.floor(y)]
        if len(fractions):
            raise InvalidOption(
                f"target = 'classes', but there is a label {float(fractions[0]):g}",
                "classes are 0, 1, 2, …",
                where=("target",),
            )
    if y.ndim == 2 and y.shape[1] == 1:
        return y[:, 0]
    return y


def _count(labels: list[NDArray[Any]], classes: int | None) -> int:
    """Return the number of classes after checking them."""
    if labels[0].ndim > 1:
        labels = [y[y != IGNORED] for y in labels]
        require(
            any(y.size for y in labels), f"every label is {IGNORED}, which is ignored"
        )
        labels = [y for y in labels if y.size]
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
        f"the labels of {classes} classes are 0 … {int(classes or 0) - 1}",
        where="classes",
    )
    if classes is None:
        return high + 1
    return int(classes)


def _check_multi(labels: list[NDArray[Any]]) -> None:
    for y in labels:
        outside = (y < 0) | (y > 1)
        if outside.any():
            raise InvalidOption(
                f"target = 'multi-label', but there is a label {y[outside][0]:g}",
                "multi-label targets lie between 0 and 1",
                where=("target",),
            )
