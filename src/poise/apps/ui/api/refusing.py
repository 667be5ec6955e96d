"""Questions that make sense, and have no answer for the run as it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from poise.core.errors import InvalidOption, PoiseError


class Refused(PoiseError):
    """What was asked is understood, and cannot be done with this run."""


@contextmanager
def refusing() -> Iterator[None]:
    """Answer options that a run cannot have as a conflict (409): the description of the API allows
    them.
    """
    try:
        yield
    except InvalidOption as error:
        raise Refused(error.message, error.hint) from error
