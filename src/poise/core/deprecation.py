"""Warnings for what the next minor version removes (``docs/policy.md``)."""

from __future__ import annotations

import warnings


def warn_deprecated(old: str, new: str, removed_in: str, stacklevel: int = 2) -> None:
    """Warn that something public goes away.

    Args:
        old: what is deprecated, as users write it.
        new: what to write instead.
        removed_in: the version that removes it.
        stacklevel: how many callers lie between this function and the user's code.

    Python hides a `DeprecationWarning` outside of ``__main__``; a `FutureWarning` is
    seen by everybody.

    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warn_deprecated("m=", "clients=", removed_in="0.3")
    >>> print(caught[0].message)
    m= is deprecated: write clients=; poise 0.3 removes the old form
    """
    warnings.warn(
        f"{old} is deprecated: write {new}; poise {removed_in} removes the old form",
        FutureWarning,
        stacklevel=stacklevel + 1,
    )
