"""Valid requests that the current state of a run forbids (HTTP 409)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from poise.core.errors import InvalidOption, PoiseError


class RequestConflict(PoiseError):
    """The request is valid, but this run cannot fulfil it."""


@contextmanager
def as_conflict() -> Iterator[None]:
    """Turn `InvalidOption` into a conflict (409): the API schema allows these options."""
    try:
        yield
    except InvalidOption as error:
        raise RequestConflict(error.message, error.hint) from error
