"""The values of one column in one block: numbers or texts, and gaps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

MISSING = frozenset({"", "?", "na", "n/a", "nan", "null", "none"})
"""Cells of a CSV file that stand for a missing value."""

TRUTH = {"true": 1, "false": 0}
"""Cells of a CSV file that stand for truth values."""


@dataclass(frozen=True, eq=False)
class Values:
    """The values of a column.

    Args:
        given: as the table has them, (rows,) or (rows, …).
        gaps: rows without a value.
        numbers: as int64 or float64 with 0 in the gaps (of any type for arrays); None
            if some present value is a text.
    """

    given: NDArray[Any]
    gaps: NDArray[np.bool_]
    numbers: NDArray[Any] | None

    @property
    def truth(self) -> bool:
        """Whether all present values are true or false."""
        if self.given.dtype.kind in "iuf":
            return False
        present = self.given[~self.gaps]
        return all(str(value).lower() in TRUTH for value in present)

    def first_text(self) -> int | None:
        """Return the first row whose value is no number, or None."""
        for row in np.flatnonzero(~self.gaps):
            if _numbers(self.given[row : row + 1]) is None:
                return int(row)
        return None

    def texts(self) -> NDArray[Any]:
        """Return the values as texts; gaps are empty."""
        texts = self.given.astype(object)
        texts[self.gaps] = ""
        return np.array([str(text) for text in texts], dtype=object)


def values_of(given: NDArray[Any], written: bool) -> Values:
    """Read the values of a column; ``written`` are texts of a file.

    >>> values_of(np.array(["1", "", "2.5"], dtype=object), written=True).numbers
    array([1. , 0. , 2.5])
    """
    if given.dtype.kind in "biu":
        return Values(given, np.zeros(len(given), np.bool_), _widened(given))
    if given.dtype.kind == "f":
        if given.ndim > 1:
            return Values(given, np.zeros(len(given), np.bool_), given)
        gaps = np.isnan(given)
        return Values(given, gaps, np.where(gaps, 0, given).astype(np.float64))
    if written:
        gaps = np.array([cell.lower() in MISSING for cell in given], dtype=np.bool_)
    else:
        gaps = np.array([cell is None or cell != cell for cell in given], np.bool_)
    filled = given.copy()
    if written and all(cell.lower() in TRUTH for cell in given[~gaps]):
        filled[~gaps] = [TRUTH[cell.lower()] for cell in given[~gaps]]
        filled[gaps] = 0
        return Values(given, gaps, filled.astype(np.int64))
    filled[gaps] = "0" if written else 0
    return Values(given, gaps, _numbers(filled))


def _widened(numbers: NDArray[Any]) -> NDArray[Any]:
    """Return whole numbers of a plain column as int64; arrays keep their type."""
    if numbers.ndim > 1:
        return numbers
    return numbers.astype(np.int64)


def _numbers(values: NDArray[Any]) -> NDArray[Any] | None:
    """Return texts or objects as int64 or else float64; None if one is no number."""
    kinds = {type(value) for value in values}
    if str in kinds:
        if len(kinds) > 1 or any("_" in text for text in values):
            return None  # Python accepts 1_000 as a number
        for dtype in (np.int64, np.float64):
            try:
                return values.astype(str).astype(dtype)
            except (ValueError, OverflowError):
                continue
        return None
    numbers = np.array(values.tolist())
    if numbers.dtype.kind in "bi":
        return numbers.astype(np.int64)
    if numbers.dtype.kind in "uf":
        return numbers.astype(np.float64)
    return None
