"""Helpers of the contract suites: clauses, refusals and default settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import numpy as np

from poise.core.errors import PoiseError
from poise.core.protocols import Fits
from poise.core.types import Floats, Setting

Result = TypeVar("Result")

SIZES = (11, 2, 7, 5, 3, 13, 4, 6)
"""Unequal sizes of the clients that the suites use by default."""


def holds(condition: object, part: object, clause: str, detail: object = "") -> None:
    """Raise `AssertionError` unless a clause holds."""
    if not condition:
        raise AssertionError(
            f"{part!r} breaks the clause '{clause}': {detail}".removesuffix(": ")
        )


@contextmanager
def refused(
    part: object, clause: str, *kinds: type[PoiseError], naming: str = ""
) -> Iterator[None]:
    """Expect one of these errors, with a message that contains ``naming``."""
    wanted = " or ".join(k.__name__ for k in kinds)
    try:
        yield
    except kinds as error:
        holds(
            naming in str(error),
            part,
            clause,
            f"the message does not name {naming!r}: {error}",
        )
    except Exception as error:
        raise AssertionError(
            f"{part!r} breaks the clause '{clause}': {type(error).__name__} "
            f"({error}), not {wanted}"
        ) from error
    else:
        raise AssertionError(
            f"{part!r} breaks the clause '{clause}': it was accepted, {wanted} was "
            "expected"
        )


def setting_of(
    sizes: tuple[int, ...] = SIZES, importance: Floats | None = None
) -> Setting:
    """Return the setting of these client sizes; importance is by size by default."""
    n = np.array(sizes, dtype=np.int64)
    if importance is None:
        importance = n / n.sum()
    p = np.asarray(importance, dtype=np.float64)
    alike = (1.0 - np.eye(len(n))) / max(len(n) * (len(n) - 1), 1)
    return Setting(len(n), n, p, similar=lambda: alike)


def fits(part: Fits, setting: Setting) -> None:
    """Check that the part accepts the setting of its test."""
    try:
        part.fit(setting)
    except PoiseError as error:
        raise AssertionError(
            f"{part!r} does not fit the setting of its own test: {error}"
        ) from error


def quietly(call: Callable[[], Result], part: object, clause: str) -> Result:
    """Return the result of a call that must not raise."""
    try:
        return call()
    except Exception as error:
        raise AssertionError(
            f"{part!r} breaks the clause '{clause}': {type(error).__name__}: {error}"
        ) from error
