"""Errors that say what is wrong, where, and what to do about it."""

from __future__ import annotations

from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class PoiseError(Exception):
    """Base of every error that poise raises on purpose.

    Args:
        message: what is wrong, with the file, key, client or value.
        hint: what to do about it.
        where: the path of the wrong option, outermost first: ``("sampler", "m")``,
            ``("attacks", "1", "clients")``.

    The command line returns ``exit_code``: 2 for wrong use, 1 for a failure.
    """

    exit_code = 1

    def __init__(
        self, message: str, hint: str = "", *, where: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.where = where

    def __str__(self) -> str:
        if self.hint:
            return f"{self.message} ({self.hint})"
        return self.message


class InvalidOption(PoiseError):
    """An option of a part, a federation or an experiment file has an invalid value."""

    exit_code = 2


class IncompatibleParts(PoiseError):
    """A part does not fit another part, the task or the federation."""

    exit_code = 2


class DataError(PoiseError):
    """A data file is missing, truncated, altered, or has the wrong content."""


class UpdateRefused(PoiseError):
    """A client sent an update or a report that must not enter the average."""


class UpdatesUnknown(PoiseError):
    """A weighting reads the updates, but the caller gave only columns about them."""


class LedgerError(PoiseError):
    """poise cannot read or write the run folder."""


class RunLocked(LedgerError):
    """Another process writes to this run."""


class RunTaken(LedgerError):
    """Another process wrote to this run meanwhile, although this process had its lock."""


class RoundsLost(LedgerError):
    """Resuming a run would take back recorded rounds.

    Args:
        recorded: number of recorded rounds.
        kept: number of rounds that can be read.
    """

    def __init__(
        self, message: str, hint: str = "", *, recorded: int = 0, kept: int = 0
    ) -> None:
        super().__init__(message, hint)
        self.recorded = recorded
        self.kept = kept


ELSEWHERE = {
    "learning_rate": ("lr",),
    "learning-rate": ("lr",),
    "eta": ("lr",),
    "local_steps": ("steps",),
    "local_epochs": ("epochs",),
    "batchsize": ("batch_size",),
    "batch": ("batch_size",),
    "num_clients": ("clients",),
    "n_clients": ("clients",),
    "clients_per_round": ("m",),
    "fraction": ("m", "share"),
    "num_rounds": ("rounds",),
    "n_rounds": ("rounds",),
    "epochs_total": ("rounds",),
    "dataset": ("source",),
    "concentration": ("alpha", "kappa"),
    "beta": ("alpha",),
    "natural": ("by-key",),
}
"""Names of options in other tools, and what poise calls them."""


def suggest(word: str, known: Iterable[str]) -> str:
    """Return a hint with the nearest known word, or with all known words, if any.

    >>> suggest("unifrom", ["uniform", "full"])
    "did you mean 'uniform'?"
    >>> suggest("xyz", ["uniform", "full"])
    'known: full, uniform'
    """
    known = sorted(known)
    meant = ELSEWHERE.get(word.lower(), ())
    nearest = [name for name in meant if name in known]
    nearest += [name for name in known if name.lower() == word.lower()]
    nearest = nearest or get_close_matches(word, known, n=1)
    if nearest:
        return f"did you mean {nearest[0]!r}?"
    if not known:
        return ""
    return f"known: {', '.join(known)}"


def without_quotes(value: object) -> str:
    """Return a hint if a text is a number or a truth value in quotes; else nothing.

    >>> without_quotes("0.5"), without_quotes("many")
    ('write it without quotes: 0.5', '')
    """
    if not isinstance(value, str):
        return ""
    if value in ("true", "false"):
        return f"write it without quotes: {value}"
    try:
        float(value)
    except ValueError:
        return ""
    return f"write it without quotes: {value}"


def require(condition: bool, message: str, hint: str = "", *, where: str = "") -> None:
    """Raise `InvalidOption` unless ``condition`` holds; ``where`` names the option."""
    if not condition:
        raise InvalidOption(message, hint, where=(where,) if where else ())


@contextmanager
def errors_at(*where: str) -> Iterator[None]:
    """Prefix the ``where`` of every error raised inside the block.

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


TOO_LARGE = ("allocate memory", "overflow", "too large", "out of memory")
"""Words in PyTorch's errors about sizes beyond the machine."""


@contextmanager
def sizes_checked() -> Iterator[None]:
    """Turn failures by sheer size inside the block into `InvalidOption`.

    >>> with sizes_checked():
    ...     bytearray(10**18)
    Traceback (most recent call last):
    ...
    poise.core.errors.InvalidOption: a number is too large for this machine: MemoryError ...
    """
    try:
        yield
    except (MemoryError, OverflowError, RuntimeError) as error:
        text = f"{error}".partition("\n")[0]
        by_size = not isinstance(error, RuntimeError)
        if not by_size and not any(word in text.lower() for word in TOO_LARGE):
            raise
        reason = text or type(error).__name__
        raise InvalidOption(
            f"a number is too large for this machine: {reason}",
            "use smaller sizes, steps, batches or numbers of clients",
        ) from error
