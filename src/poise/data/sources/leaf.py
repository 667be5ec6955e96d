"""`leaf`: data in LEAF's format, such as FEMNIST, with one client per user."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from poise.core.errors import DataError, require
from poise.core.samples import Samples
from poise.core.types import Ints
from poise.data.catalogue import LEAF
from poise.data.files import folders
from poise.data.sources.source import Source

DIGITS = 10
"""FEMNIST's labels are 0 … 9 for digits, then 26 capital and 26 small letters."""

_LEVELS = 255
_KEYS = ("users", "num_samples", "user_data")


def leaf(folder: str = LEAF.folder, digits: bool = False, classes: int = 62) -> Source:
    """The users of LEAF's ``train/*.json``; ``test/*.json``, if any, is held out.

    A file is
    ``{"users": […], "num_samples": […], "user_data": {user: {"x": [[…], …], "y": […]}}}``.
    Vectors of a square length are images: 784 makes 1x28x28. Values are not rescaled;
    if all are whole 255ths (grey values), they are stored as bytes. If LEAF split by
    sample, users have their own test samples. If it split by user, the test users are
    unseen, and their samples form the federation's test set.

    Args:
        folder: holds ``train`` and ``test``; a relative path is searched in the data
            folders.
        digits: keep the ten digits only [Buttaci 2024, §3.4.2], and the users with
            digits.
        classes: number of classes; a larger label raises `DataError`. Not used with
            ``digits``.

    >>> fed = federation("leaf", "by-key", digits=True)  # doctest: +SKIP
    >>> fed.names[0]  # doctest: +SKIP
    'f0000_14'

    Source: [Caldas 2018]; FEMNIST's digits, [Buttaci 2024, §3.4.2 and §4.5.2].
    """
    require(
        classes >= 1, f"leaf: classes = {classes} must be at least 1", where="classes"
    )
    place = _located(folder)
    train, test = (
        tuple(sorted((place / part).glob("*.json"))) for part in ("train", "test")
    )
    if not train:
        raise DataError(f"leaf: there is no *.json in {place / 'train'}", LEAF.by_hand)
    stamps = tuple(
        (path, path.stat().st_size, path.stat().st_mtime_ns) for path in train + test
    )
    return _load(stamps, len(train), digits, classes)


def _located(folder: str) -> Path:
    # joining an absolute path gives that path
    places = [place / folder for place in folders()]
    for place in places:
        if place.is_dir():
            return place
    raise DataError(
        f"leaf: there is no folder {' or '.join(map(str, dict.fromkeys(places)))}",
        LEAF.by_hand,
    )


@dataclass(frozen=True, eq=False)
class User:
    """The samples of one user in one file.

    Args:
        name: of the user.
        x: values, (n, D), bytes where ``value * 255`` is whole, else float32.
        y: labels, (n,).
        path: of the file.
    """

    name: str
    x: NDArray[Any]
    y: Ints
    path: Path


@lru_cache(maxsize=2)
def _load(
    stamps: tuple[tuple[Path, int, int], ...], training: int, digits: bool, classes: int
) -> Source:
    paths = [path for path, *_ in stamps]
    train = _users_with_samples(paths[:training], digits, classes=classes)
    test = _users_with_samples(paths[training:], digits, classes=classes)
    sample = "a sample"
    count = classes
    kind = ""
    if digits:
        sample = "a digit"
        count = DIGITS
        kind = "digits of "
    require(bool(train), f"leaf: no user in {paths[0].parent} has {sample}")
    _check_lengths(train + test)
    names = tuple(dict.fromkeys(user.name for user in train + test))
    numbers = {name: number for number, name in enumerate(names)}
    common = {user.name for user in train} & {user.name for user in test}
    exact = all(user.x.dtype == np.uint8 for user in train + test)
    notes = f"{kind}{len(train):,} users in LEAF's format, {paths[0].parent.parent}"
    if test and not common:
        notes += "; the test users are others"
    source = Source(
        "leaf",
        _pool(train, exact, classes=count),
        keys=_owners(train, numbers),
        key_names=names,
        notes=notes,
    )
    if test:
        source = replace(source, test=_pool(test, exact, classes=count))
    if common:
        source = replace(source, test_keys=_owners(test, numbers))
    return source


def _users_with_samples(
    paths: Iterable[Path], digits: bool, classes: int
) -> list[User]:
    """Return the users of several files that have samples of the chosen classes."""
    users = [_kept(user, digits, classes=classes) for user in _users(paths)]
    return [user for user in users if len(user.y)]


def _check_lengths(users: list[User]) -> None:
    """Raise `DataError` unless all users have vectors of one length."""
    first = users[0]
    length = first.x.shape[1]
    for user in users:
        if user.x.shape[1] != length:
            raise _wrong(
                user.path,
                user.name,
                f"vectors of {user.x.shape[1]} values, but of {length} for {first.name!r} "
                f"in {first.path}",
            )


def _users(paths: Iterable[Path]) -> Iterator[User]:
    """Yield the users of several files; a user in two of them raises `DataError`."""
    where: dict[str, Path] = {}
    for path in paths:
        for user in read_users(path):
            if user.name in where:
                raise DataError(
                    f"{path}: user {user.name!r} is already in {where[user.name]}"
                )
            where[user.name] = path
            yield user


def _kept(user: User, digits: bool, classes: int) -> User:
    """Return the user with the samples of the chosen classes; checks the labels."""
    if digits:
        chosen = (user.y >= 0) & (user.y < DIGITS)
        return User(user.name, user.x[chosen], user.y[chosen], user.path)
    if len(user.y) and (user.y.min() < 0 or user.y.max() >= classes):
        bad = int(user.y[(user.y < 0) | (user.y >= classes)][0])
        problem = f"label {bad} lies outside 0..{classes - 1}"
        raise _wrong(user.path, user.name, problem, hint="set classes=")
    return user


def _pool(users: list[User], exact: bool, classes: int) -> Samples:
    length = users[0].x.shape[1]
    edge = isqrt(length)
    shape: tuple[int, ...] = (length,)
    if edge * edge == length:
        shape = (1, edge, edge)
    values = [user.x for user in users]
    scale = 1 / _LEVELS
    if not exact:
        values = [_values(x) for x in values]
        scale = 1.0
    rows = np.concatenate(values).reshape(-1, *shape)
    labels = torch.from_numpy(np.concatenate([user.y for user in users]))
    return Samples(torch.from_numpy(rows), labels, scale, classes=classes)


def _owners(users: list[User], numbers: dict[str, int]) -> Ints:
    """Return the number of the owner of each sample."""
    owners = np.array([numbers[user.name] for user in users], dtype=np.int64)
    return np.repeat(owners, [len(user.y) for user in users])


def _values(x: NDArray[Any]) -> NDArray[np.float32]:
    if x.dtype == np.uint8:
        return x.astype(np.float32) / np.float32(_LEVELS)
    return x


def read_users(path: Path) -> list[User]:
    """Return the users of a LEAF file; `DataError` names the place of a defect."""
    try:
        held = json.loads(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{path}: not JSON: {error}", "if it is truncated, let LEAF write it again"
        ) from error
    for key in _KEYS:
        if not isinstance(held, dict) or key not in held:
            raise DataError(f"{path}: not in LEAF's format: there is no {key!r}")
    users, counts, data = (held[key] for key in _KEYS)
    if (
        not isinstance(users, list)
        or not isinstance(counts, list)
        or not isinstance(data, dict)
    ):
        raise DataError(
            f"{path}: users and num_samples must be lists and user_data a table"
        )
    if len(users) != len(counts):
        raise DataError(f"{path}: {len(users)} users, but {len(counts)} num_samples")
    names = [str(user) for user in users]
    for name, times in Counter(names).items():
        if times > 1:
            raise _wrong(path, name, "named twice in users")
    for name in sorted(data.keys() - set(names)):
        raise _wrong(path, name, "in user_data, but not in users")
    return [
        _user(path, name, count, data)
        for name, count in zip(names, counts, strict=True)
    ]


def _user(path: Path, name: str, count: object, data: dict[str, Any]) -> User:
    """Return one user after checking its data."""
    held = data.get(name)
    if not isinstance(held, dict) or not {"x", "y"} <= set(held):
        raise _wrong(path, name, "no x and y in user_data")
    for key in ("x", "y"):
        if not isinstance(held[key], list):
            raise _wrong(path, name, f"{key} is not a list")
        entries = len(held[key])
        if entries != count:
            raise _wrong(
                path,
                name,
                f"{entries} entries in {key}, but num_samples says {count!r}",
            )
    if not count:
        return User(name, np.empty((0, 0), np.uint8), np.empty(0, np.int64), path)
    x = _numbers(path, name, key="x", values=held["x"], axes=2)
    y = _numbers(path, name, key="y", values=held["y"], axes=1)
    if (y != np.rint(y)).any():
        raise _wrong(
            path, name, f"label {y[y != np.rint(y)][0]:g} is not a whole number"
        )
    return User(name, compact(x), y.astype(np.int64), path)


def _numbers(
    path: Path, name: str, key: str, values: list[Any], axes: int
) -> NDArray[Any]:
    """Return the finite numbers of a list, or of lists of one length, as an array."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise _wrong(
            path, name, f"the vectors in {key} have different lengths"
        ) from error
    if array.ndim != axes or not array.size:
        content = "vectors of one length" if axes == 2 else "numbers"
        raise _wrong(
            path, name, f"{key} must hold {content}, but has shape {array.shape}"
        )
    if array.dtype.kind not in "iuf":
        raise _wrong(path, name, f"{key} holds something that is not a number")
    infinite = ~np.isfinite(array.reshape(len(array), -1)).all(axis=1)
    if infinite.any():
        raise _wrong(
            path, name, f"{key} is not finite in sample {int(np.argmax(infinite))}"
        )
    return array


def compact(x: NDArray[Any]) -> NDArray[Any]:
    """Return values as bytes if all are 0/255 … 255/255, else as float32.

    >>> compact(np.array([[0.0, 1.0, 128 / 255]])).tolist(), compact(np.array([[0.5]])).dtype.name
    ([[0, 255, 128]], 'float32')
    """
    levels = np.rint(x * float(_LEVELS))
    if (
        x.min() >= 0
        and x.max() <= 1
        and np.abs(levels - x * float(_LEVELS)).max() < 1e-4
    ):
        return levels.astype(np.uint8)
    return x.astype(np.float32)


def _wrong(path: Path, user: str, problem: str, hint: str = "") -> DataError:
    return DataError(f"{path}: user {user!r}: {problem}", hint)
