"""`load_own`: a source from the user's data of any kind."""

from __future__ import annotations

import csv
import inspect
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from poise.core.arrays import array_of
from poise.core.errors import DataError, InvalidOption, require
from poise.core.trees import leaves, mapped
from poise.data.blocks import joined
from poise.data.own.encoding import Read
from poise.data.own.kinds import is_many, is_path, members_of, opened, reader_of
from poise.data.sources.arrays import arrays
from poise.data.sources.inputs import Features, feature_arrays
from poise.data.sources.source import Source

MOST_LISTED = 5
"""Classes that a warning names."""


def load_own(source: object, options: Mapping[str, Any]) -> Source:
    """Return the source of the user's data.

    Args:
        source: a pair of arrays, a data frame, a data set, a path, or a list or table
            of these with one entry per client.
        options: of the readers of these kinds, and of `arrays`.
    """
    members = members_of(source)
    require(len(members) > 0, "the list of clients is empty", where="source")
    if is_many(source):
        for option in ("key", "keys"):
            absent = options.get(option) is None
            require(absent, f"the list of clients needs no {option}", where=option)
    test = options.get("test")
    given = members if test is None else [*members, test]
    reads = read_members(given, options)
    tests = reads[len(members) :]
    parts = reads[: len(members)]
    rest = _options_of(arrays, options, without=("test",))
    if tests:
        rest["test"] = (tests[0].x, tests[0].y)
    first = parts[0]
    x, y = first.x, first.y
    names: tuple[str, ...] = ()
    if is_many(source):
        names = _client_names(source)
        x, y = _joined(parts, names, ragged=options.get("collate") is not None)
        rest["keys"] = np.repeat(np.arange(len(parts)), [len(part.y) for part in parts])
    elif first.keys is not None:
        rest.setdefault("keys", _uniform(first.keys))
    made = arrays((x, y), **rest)
    class_names = first.class_names or made.class_names
    if tests and not _names_classes(options):
        _warn_of_test_only_classes(made, class_names)
    return replace(
        made,
        name=_name(source),
        key_names=names or made.key_names,
        columns=first.columns,
        class_names=class_names,
        offered=first.offered,
    )


def read_members(members: Sequence[object], options: Mapping[str, Any]) -> list[Read]:
    """Read data sets; those of the same kind are read together and share an encoding."""
    reads: dict[int, Read] = {}
    readers = [reader_of(member) for member in members]
    for reader in dict.fromkeys(readers):
        places = [k for k, own in enumerate(readers) if own is reader]
        data = [opened(members[k]) for k in places]
        try:
            found = reader(data, **_options_of(reader, options))
        except (OSError, ValueError, csv.Error) as error:
            name = _name(members[places[0]])
            raise DataError(f"{name} cannot be read as data: {error}") from error
        reads.update(zip(places, found, strict=True))
    return [reads[k] for k in range(len(members))]


def _names_classes(options: Mapping[str, Any]) -> bool:
    """Whether the user named the classes, or their number."""
    listed = options.get("categories") or {}
    return options.get("classes") is not None or options.get("label") in listed


def _warn_of_test_only_classes(source: Source, names: Sequence[str]) -> None:
    """Warn of classes of the model that no training sample has."""
    count = source.train.classes or source.train.element_classes
    if source.test is None or not count:
        return
    absent = _held(source.test.labels, count) & ~_held(source.train.labels, count)
    found = [names[k] if names else str(k) for k in np.flatnonzero(absent).tolist()]
    if not found:
        return
    listed = ", ".join(found[:MOST_LISTED])
    if len(found) > MOST_LISTED:
        listed += f" and {len(found) - MOST_LISTED} more"
    warnings.warn(
        f"only the test data have samples of the classes {listed}; the model has "
        f"{count} classes (correct the labels, or name all classes: classes=)",
        stacklevel=4,
    )


def _held(labels: torch.Tensor, count: int) -> NDArray[np.bool_]:
    """Mark the classes that occur among labels; negative labels are ignored entries."""
    held = np.zeros(count, np.bool_)
    values = labels.numpy()
    held[values[values >= 0]] = True
    return held


def _options_of(
    taker: Any, options: Mapping[str, Any], without: Sequence[str] = ()
) -> dict[str, Any]:
    known = inspect.signature(taker).parameters
    return {
        name: value
        for name, value in options.items()
        if name in known and name not in without
    }


def _client_names(source: object) -> tuple[str, ...]:
    """Return the names of clients: those of a table, else file names or numbers."""
    if isinstance(source, Mapping):
        return tuple(str(name) for name in source)
    members = members_of(source)
    if all(is_path(member) for member in members):
        stems = tuple(Path(str(member)).stem for member in members)
        if len(set(stems)) == len(stems):
            return stems
    return tuple(str(k) for k in range(len(members)))


def _joined(
    parts: Sequence[Read], names: Sequence[str], ragged: bool
) -> tuple[Any, Any]:
    """Return features and labels of all clients, one after the other."""
    if ragged:
        return _lists(parts, names)
    xs: list[Features] = []
    ys: list[NDArray[Any]] = []
    for part, name in zip(parts, names, strict=True):
        y = array_of(part.y, f"client {name}: y")
        x = feature_arrays(part.x, len(y), f"client {name}: x")
        for array in leaves(x):
            _check_client(len(array), len(y), name)
        if _form(x) != _form((xs or [x])[0]):
            raise InvalidOption(
                f"client {name}: samples have {_words(x)}, those of client "
                f"{names[0]} {_words(xs[0])}",
                "all clients need the same features",
                where=("source",),
            )
        xs.append(part.x if isinstance(part.x, np.memmap) else x)
        ys.append(y)
    columns = iter(zip(*(leaves(x) for x in xs), strict=True))
    return mapped(lambda _: joined(list(next(columns))), xs[0]), joined(ys)


def _lists(parts: Sequence[Read], names: Sequence[str]) -> tuple[list[Any], list[Any]]:
    """Return the texts and the labels of all clients, for a ``collate``."""
    for part, name in zip(parts, names, strict=True):
        _check_client(len(part.x), len(part.y), name)
    texts = [text for part in parts for text in part.x]
    return texts, [label for part in parts for label in part.y]


def _check_client(samples: int, labels: int, name: str) -> None:
    require(samples > 0, f"client {name} has no samples", where="source")
    require(samples == labels, f"client {name}: {samples} samples but {labels} labels")


def _form(x: Features) -> object:
    """Return what all clients must share: names and shapes of the inputs."""
    names = tuple(x) if isinstance(x, dict) else type(x)
    return names, [part.shape[1:] for part in leaves(x)]


def _words(x: Features) -> str:
    """Return the shapes of a client's samples in words."""
    if isinstance(x, np.ndarray):
        return f"shape {x.shape[1:]}"
    shapes = [str(part.shape[1:]) for part in leaves(x)]
    if isinstance(x, dict):
        shapes = [f"{name} {shape}" for name, shape in zip(x, shapes, strict=True)]
    return f"inputs {', '.join(shapes)}"


def _uniform(keys: NDArray[Any]) -> NDArray[Any]:
    """Return owners as numbers if all are numbers, else as texts."""
    if keys.dtype != object:
        return keys
    if all(isinstance(key, int) for key in keys.tolist()):
        return keys.astype(np.int64)
    return keys.astype(str)


def _name(source: object) -> str:
    if is_path(source):
        return Path(str(source)).name
    return "arrays"
