"""The first pass over tables: the kind of each column, its texts, and the gaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poise.core.errors import DataError, InvalidOption
from poise.data.own.columns import Values, values_of
from poise.data.own.table import Block, Table

Missing = str | float
"""``error``, ``drop`` (the row), or the number that fills gaps of number columns."""

MOST_TEXTS = 1000
FILL = "fill or remove these rows"
_FILL_HERE = f"{FILL}, or write missing='drop' or missing=0.0"
_NEEDED = "remove these rows, or write missing='drop'"


@dataclass(eq=False)
class ColumnSurvey:
    """Facts about one column over all tables.

    Args:
        fixed: the texts that the user listed, in this order; None if there is no list.
        numbers: whether some value is a number.
        whole: whether all numbers are whole.
        truth: whether all values are true or false.
        text: place and value of the first text.
        texts: all texts.
        shape: of one value; () for plain columns.
        dtype: of the numbers.
    """

    fixed: tuple[str, ...] | None = None
    numbers: bool = False
    whole: bool = True
    truth: bool = True
    text: tuple[str, str] | None = None
    texts: set[str] = field(default_factory=set)
    shape: tuple[int, ...] = ()
    dtype: np.dtype[Any] = np.dtype(np.int64)

    @property
    def categories(self) -> tuple[str, ...] | None:
        """The texts of the column in order; None for a column of numbers."""
        if self.fixed is not None:
            return self.fixed
        if self.text is None:
            return None
        return tuple(sorted(self.texts))


@dataclass(frozen=True, eq=False)
class Survey:
    """Facts about the columns of tables.

    Args:
        columns: by name.
        rows: kept rows of each table.
    """

    columns: Mapping[str, ColumnSurvey]
    rows: tuple[int, ...]


def survey(
    tables: Sequence[Table],
    names: Sequence[str],
    categories: Mapping[str, Sequence[object]],
    missing: Missing,
    *,
    needed: Sequence[str] = (),
    closed: bool,
) -> Survey:
    """Read all tables once; raise `DataError` with line and column for bad values.

    Args:
        tables: to read.
        names: the columns to read.
        categories: the texts of columns, if the user listed them.
        missing: what to do with gaps.
        needed: columns whose gaps no number can fill: labels and owners.
        closed: refuse columns of texts without a list.
    """
    columns = {}
    for name in names:
        fixed = None
        if name in categories:
            fixed = tuple(str(text) for text in categories[name])
        columns[name] = ColumnSurvey(fixed)
    rows = []
    for table in tables:
        count = 0
        own = present(table, names)
        for block in table.read(own):
            for name in own:
                values = values_of(block.columns[name], table.written)
                _look(columns[name], values, f"{table.name}, ", name=name, block=block)
            count += int(kept_rows(table, block, own, missing, needed).sum())
        if not count:
            raise DataError(f"{table.name} has columns but no rows")
        rows.append(count)
    for name, column in columns.items():
        _check(column, name, closed)
    return Survey(columns, tuple(rows))


def present(table: Table, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names that the table has; test data may lack the owners' column."""
    return tuple(name for name in names if name in table.names)


def kept_rows(
    table: Table,
    block: Block,
    names: Sequence[str],
    missing: Missing,
    needed: Sequence[str] = (),
) -> NDArray[np.bool_]:
    """Mark the rows to keep; raise `DataError` for a gap that nothing fills.

    These are all gaps if ``missing`` is ``error``, and those of ``needed`` columns
    if it is a number.
    """
    kept = np.ones(len(block), np.bool_)
    for name in names:
        gaps = values_of(block.columns[name], table.written).gaps
        if not gaps.any():
            continue
        if missing == "drop":
            kept &= ~gaps
        elif name in needed or missing == "error":
            place = block.place(int(np.argmax(gaps)))
            problem = "no value"
            hint = _FILL_HERE
            if name in needed:
                problem = "a label or owner has no value"
                hint = _NEEDED
            raise DataError(f"{table.name}, {place}, column {name!r}: {problem}", hint)
    return kept


def _look(
    column: ColumnSurvey, values: Values, file: str, *, name: str, block: Block
) -> None:
    """Add the values of one block to the facts about a column."""
    if column.fixed is not None:
        _check_listed(column.fixed, values, file, name=name, block=block)
        return
    numbers = values.numbers
    if numbers is None:
        row = values.first_text()
        assert row is not None
        if column.text is None:
            column.text = (f"{file}{block.place(row)}", str(values.given[row]))
        texts = values.given[~values.gaps]
        is_text = [_is_text(text) for text in texts]
        column.numbers |= not all(is_text)
        if len(column.texts) <= MOST_TEXTS:
            column.texts.update(str(text) for text in texts)
        return
    if values.gaps.all():
        return
    column.numbers = True
    column.whole &= numbers.dtype.kind in "biu"
    column.truth = column.truth and values.truth
    column.shape = numbers.shape[1:]
    column.dtype = numbers.dtype
    if numbers.dtype.kind == "f" and not np.isfinite(numbers).all():
        bad = ~np.isfinite(numbers.reshape(len(numbers), -1)).all(axis=1)
        row = int(np.argmax(bad))
        value = f" {values.given[row]}" if numbers.ndim == 1 else " a value"
        raise DataError(
            f"{file}{block.place(row)}, column {name!r}:{value} is not finite", FILL
        )


def _is_text(value: Any) -> bool:
    return values_of(np.array([value], dtype=object), written=False).numbers is None


def _check_listed(
    listed: Sequence[str], values: Values, file: str, *, name: str, block: Block
) -> None:
    texts = values.texts()
    for row in np.flatnonzero(~values.gaps):
        if texts[row] not in listed:
            raise DataError(
                f"{file}{block.place(int(row))}, column {name!r}: {texts[row]!r} is "
                "none of its categories",
                f"categories: {', '.join(listed)}",
            )


def _check(column: ColumnSurvey, name: str, closed: bool) -> None:
    """Refuse columns that mix numbers and texts, and those with too many texts."""
    if column.text is None or column.fixed is not None:
        return
    place, text = column.text
    if column.numbers or closed:
        if len(text) > 40:
            text = f"{text[:37]}..."
        raise DataError(
            f"{place}, column {name!r}: {text!r} is not a number",
            f"correct it, or list the texts of the column: categories.{name} = […]",
        )
    if len(column.texts) > MOST_TEXTS:
        raise InvalidOption(
            f"column {name!r} has more than {MOST_TEXTS} different texts",
            "leave it out (features=[…]), or turn it into numbers",
            where=("features",),
        )
