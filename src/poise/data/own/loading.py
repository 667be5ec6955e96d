"""`load_own`: a source from the user's data of any kind."""

from __future__ import annotations

import csv
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poise.core.arrays import array_of
from poise.core.errors import DataError, InvalidOption, require
from poise.data.blocks import joined
from poise.data.own.encoding import Read
from poise.data.own.kinds import is_many, is_path, members_of, opened, reader_of
from poise.data.sources.arrays import arrays
from poise.data.sources.source import Source


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
        x, y = _joined(parts, names)
        rest["keys"] = np.repeat(np.arange(len(parts)), [len(part.x) for part in parts])
    elif first.keys is not None:
        rest.setdefault("keys", _uniform(first.keys))
    made = arrays((x, y), **rest)
    return replace(
        made,
        name=_name(source),
        key_names=names or made.key_names,
        columns=first.columns,
        class_names=first.class_names or made.class_names,
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


def _joined(parts: Sequence[Read], names: Sequence[str]) -> tuple[Any, Any]:
    """Return features and labels of all clients, one after the other."""
    xs: list[NDArray[Any]] = []
    ys: list[NDArray[Any]] = []
    for part, name in zip(parts, names, strict=True):
        x = array_of(part.x, f"client {name}: x")
        y = array_of(part.y, f"client {name}: y")
        require(len(x) > 0, f"client {name} has no samples", where="source")
        require(
            len(x) == len(y), f"client {name}: {len(x)} samples but {len(y)} labels"
        )
        if x.shape[1:] != (xs or [x])[0].shape[1:] or x.ndim != (xs or [x])[0].ndim:
            raise InvalidOption(
                f"client {name}: samples have shape {x.shape[1:]}, those of client "
                f"{names[0]} {xs[0].shape[1:]}",
                "all clients need the same features",
                where=("source",),
            )
        xs.append(part.x if isinstance(part.x, np.memmap) else x)
        ys.append(y)
    return joined(xs), joined(ys)


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
