"""`shakespeare`: prediction of the next character in the lines of a role."""

from __future__ import annotations

import json
import string
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from poise.core.errors import DataError, require
from poise.core.samples import Samples
from poise.core.types import Ints
from poise.data.catalogue import SHAKESPEARE
from poise.data.files import check, home, read_gzip
from poise.data.sources.source import Source
from poise.data.splits import share_of

VOCABULARY = string.printable
"""The 100 characters of the vocabulary; a token is a position in this string."""

Tokens = NDArray[np.uint8]


def shakespeare(
    window: int = 80,
    stride: int = 1,
    min_characters: int = 1000,
    test_share: float = 0.2,
) -> Source:
    """Windows of ``window`` characters, labelled with the next one; a client per role.

    The last ``test_share`` of each role's text is held out. A window with its label
    lies inside the training part or inside the test part of one role. All windows are
    strided views of one token tensor, so each character is stored once.

    Args:
        window: characters per sample.
        stride: step between the windows of a role.
        min_characters: skip roles with less text (637 roles have 1,000 or more).
        test_share: the held-out share of each role's text.

    >>> shakespeare(stride=80).train.shape  # doctest: +NEEDS_DATA
    (80,)

    Source: [Fraboni 2023, §2.4] (window 80, next character, 100 printable characters),
    on another edition than LEAF's: scores are not comparable with LEAF's.
    """
    require(
        window >= 1,
        f"shakespeare: window = {window} must be at least 1",
        where="window",
    )
    require(
        stride >= 1,
        f"shakespeare: stride = {stride} must be at least 1",
        where="stride",
    )
    require(
        min_characters >= 0,
        f"shakespeare: min_characters = {min_characters} must not be negative",
        where="min_characters",
    )
    path = check(home("shakespeare", [SHAKESPEARE]), SHAKESPEARE)
    return _load(
        path, window, stride, min_characters, share_of(test_share, "test_share")
    )


@lru_cache(maxsize=2)
def _load(
    path: Path, window: int, stride: int, min_characters: int, test_share: float
) -> Source:
    roles = {
        name: text
        for name, text in read_roles(path).items()
        if len(text) >= min_characters
    }
    cuts = {name: round(len(text) * (1 - test_share)) for name, text in roles.items()}
    names = tuple(name for name in roles if cuts[name] > window)
    require(
        bool(names),
        (
            f"shakespeare: no role has {max(min_characters, window)} characters to train "
            "on"
        ),
    )
    train, rows, keys = windows(
        [roles[name][: cuts[name]] for name in names], window, stride
    )
    test, test_rows, test_keys = windows(
        [roles[name][cuts[name] :] for name in names], window, stride
    )
    source = Source(
        "shakespeare",
        train,
        rows=rows,
        keys=keys,
        key_names=names,
        notes=f"{len(names)} roles of at least {min_characters} characters; not "
        "LEAF's edition",
    )
    if len(test_rows):
        return replace(source, test=test, test_rows=test_rows, test_keys=test_keys)
    return source


def windows(
    texts: list[Tokens], window: int, stride: int
) -> tuple[Samples, Ints, Ints]:
    """Return the pool of windows, the rows of those inside one text, and their texts.

    >>> text = [np.array([1, 2, 3, 4], np.uint8), np.array([5, 6, 7], np.uint8)]
    >>> pool, rows, keys = windows(text, window=2, stride=1)
    >>> pool.raw[rows].tolist(), pool.labels[rows].tolist(), keys.tolist()
    ([[1, 2], [2, 3], [5, 6]], [3, 4, 7], [0, 0, 1])
    """
    tokens = torch.from_numpy(np.concatenate(texts))
    count = max(len(tokens) - window, 0)
    view = tokens.as_strided((count, window), (1, 1))
    labels = tokens[window:].long()
    edges = np.cumsum([0, *(len(text) for text in texts)])
    inside = [
        np.arange(start, end - window, stride, dtype=np.int64)
        for start, end in pairwise(edges)
    ]
    keys = np.repeat(
        np.arange(len(texts), dtype=np.int64), [len(part) for part in inside]
    )
    size = len(VOCABULARY)
    return (
        Samples(view, labels, tokens=True, classes=size, vocabulary=size),
        np.concatenate(inside),
        keys,
    )


def read_roles(path: Path) -> dict[str, Tokens]:
    """Return the text of each ``play/role`` as tokens, in the order of the file."""
    try:
        entries = json.loads(read_gzip(path).decode("utf-8"))
        texts: dict[str, str] = {}
        for entry in entries:
            name = f"{entry['play']}/{entry['role']}"
            texts[name] = "".join(f"{line}\n" for line in entry["lines"])
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path}: not a list of roles with play, role and lines: {error}"
        ) from error
    table = np.full(256, 255, np.uint8)
    table[np.frombuffer(VOCABULARY.encode("ascii"), np.uint8)] = np.arange(
        len(VOCABULARY)
    )
    try:
        coded = {
            name: table[np.frombuffer(text.encode("ascii"), np.uint8)]
            for name, text in texts.items()
        }
    except UnicodeEncodeError as error:
        raise DataError(
            f"{path}: a character is not printable ASCII: {error}"
        ) from error
    for name, tokens in coded.items():
        if (tokens == 255).any():
            raise DataError(
                f"{path}: {name} has a character outside the 100 printable ones"
            )
    return coded
