"""Errors that tell a user what was wrong, where, and what to do about it."""

from __future__ import annotations

from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class PoiseError(Exception):
    """Base of every error that poise raises on purpose.

    Args:
        message: what was wrong, naming the file, key, client or value.
        hint: what to do about it.
        where: the option at fault, from the outside in: ``("sampler", "m")``, ``("attacks", "1",
            "clients")``.

    ``exit_code`` is what the command line returns: 2 for wrong use, 1 for a failure.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str = "", *, where: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.where = where

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class InvalidOption(PoiseError):
    """An option of a part, a federation or an experiment file has a value it cannot have."""

    exit_code = 2


class IncompatibleParts(PoiseError):
    """Two parts of a composition do not fit each other."""

    exit_code = 2


class DataError(PoiseError):
    """A data file is absent, truncated or altered, or does not hold what it should."""


class UpdateRefused(PoiseError):
    """A client sent something that must not be averaged in."""


class UpdatesUnknown(PoiseError):
    """A weighting reads the updates themselves where only columns about them are given."""


class LedgerError(PoiseError):
    """The run folder cannot be read or written."""


class RunLocked(LedgerError):
    """Another process is writing to this run."""


def suggest(word: str, known: Iterable[str]) -> str:
    """A hint naming the nearest known word.

    >>> suggest("unifrom", ["uniform", "full"])
    "did you mean 'uniform'?"
    >>> suggest("xyz", ["uniform", "full"])
    'known: full, uniform'
    """
    known = sorted(known)
    near = get_close_matches(word, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"


def require(condition: bool, message: str, hint: str = "", *, where: str = "") -> None:
    """Raise `InvalidOption` unless ``condition`` holds; ``where`` is the name of the option at
    fault.
    """
    if not condition:
        raise InvalidOption(message, hint, where=(where,) if where else ())


@contextmanager
def errors_at(*where: str) -> Iterator[None]:
    """Put ``where`` in front of the place that an error inside the block names.

    >>> try:
    ...     with errors_at("sampler"):
    ...         require(False, "m must be at least 1", where="m")
    ... except InvalidOption as error:
    ...     error.where
    ('sampler', 'm')
    """
    try:
        yield
    except PoiseError as error:
        error.where = (*where, *error.where)
        raise
