"""Turn tables into the arrays of a source: features, labels, owners."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poise.core.errors import DataError, InvalidOption, require
from poise.data import blocks
from poise.data.own.columns import Values, values_of
from poise.data.own.survey import (
    ColumnSurvey,
    Missing,
    Survey,
    kept_rows,
    present,
    survey,
)
from poise.data.own.table import Table, kept


@dataclass(frozen=True, eq=False)
class Read:
    """The arrays of one data set.

    Args:
        x: features, (n, …).
        y: labels, (n, …).
        keys: the owner of each row, (n,), or None.
        columns: names of the features, for tables.
        class_names: names of the classes, if the labels were texts.
        offered: columns for the rule of a partition, (n,) each.
    """

    x: Any
    y: Any
    keys: NDArray[Any] | None = None
    columns: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()
    offered: Mapping[str, NDArray[Any]] | None = None


@dataclass(frozen=True)
class Choice:
    """Which columns of a table are what.

    Args:
        labels: columns of the labels.
        features: columns of the features.
        key: column of the owner, or "".
    """

    labels: tuple[str, ...]
    features: tuple[str, ...]
    key: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """All columns to read, each once."""
        return tuple(dict.fromkeys((*self.features, *self.needed)))

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns that need a value in every row."""
        if not self.key:
            return self.labels
        return (*self.labels, self.key)


def read_tables(
    data: Sequence[Table],
    label: str | Sequence[str] | None = None,
    features: Sequence[str] | None = None,
    key: str | None = None,
    missing: str | float = "error",
    categories: Mapping[str, Any] | None = None,
    closed: bool = False,
) -> list[Read]:
    """Return features and labels of tables that share their columns.

    Numbers stay numbers, true and false become 1 and 0. A feature column of texts
    becomes one column of 0 and 1 per text, in sorted order. Labels that are texts
    become classes in sorted order. All tables share one encoding.

    Args:
        data: the tables.
        label: the column of the labels, or several.
        features: the columns of the features; None takes all others.
        key: the column with the owner of each row.
        missing: ``error``, ``drop`` (leave out rows with gaps), or a number that fills
            gaps in feature columns of numbers.
        categories: the texts of columns in the wanted order, ``{column: [texts]}``.
        closed: refuse columns of texts that ``categories`` does not list.
    """
    require(
        missing in ("error", "drop") or not isinstance(missing, str),
        f"missing = {missing!r} must be 'error', 'drop' or a number",
        where="missing",
    )
    choice = _choice(data, label, features, key)
    listed = dict(categories or {})
    for name in listed:
        _check_column(data[0], name, "categories")
    tables = [_once(table, choice.names) for table in data]
    facts = survey(
        tables, choice.names, listed, missing, needed=choice.needed, closed=closed
    )
    return [
        _filled(table, choice, facts, rows=rows, missing=missing)
        for table, rows in zip(tables, facts.rows, strict=True)
    ]


def _once(table: Table, names: Sequence[str]) -> Table:
    if table.large:
        return table
    return kept(table, present(table, names))


def _choice(
    tables: Sequence[Table],
    label: str | Sequence[str] | None,
    features: Sequence[str] | None,
    key: str | None,
) -> Choice:
    """Resolve the columns in the first table, and check that the others have them."""
    first = tables[0]
    if label is None:
        raise InvalidOption(
            f"{first.name}: no column of labels is named",
            f"add label= with one of its columns: {', '.join(first.names)}",
            where=("label",),
        )
    labels = (label,) if isinstance(label, str) else tuple(label)
    for name in labels:
        _check_column(first, name, "label")
    if key is not None:
        _check_column(first, key, "key")
    if features is None:
        chosen = [name for name in first.names if name not in (*labels, key)]
        for table in tables[1:]:
            _check_same(first, table, ignored=key)
    else:
        require(
            not isinstance(features, str), "features must be a list", where="features"
        )
        chosen = [str(name) for name in features]
        for table in tables:
            for name in chosen:
                _check_column(table, name, "features")
    if not chosen:
        raise DataError(f"{first.name} has no columns except {labels[0]!r}")
    for table in tables[1:]:
        for name in labels:
            _check_column(table, name, "label")
    return Choice(labels, tuple(chosen), key or "")


def _check_column(table: Table, name: str, option: str) -> None:
    known = table.names
    if name in known:
        return
    nearest = difflib.get_close_matches(str(name), known, n=1)
    hint = f"columns: {', '.join(known)}; {option} = … names a column"
    if nearest:
        hint = f"did you mean {nearest[0]!r}?"
    raise DataError(f"{table.name} has no column {name!r}", hint, where=(option,))


def _check_same(first: Table, other: Table, ignored: str | None) -> None:
    """Raise if one table has a column that the other lacks."""
    for has, lacks in ((first, other), (other, first)):
        absent = [n for n in has.names if n not in lacks.names and n != ignored]
        if absent:
            raise DataError(
                f"{lacks.name} has no column {absent[0]!r}, but {has.name} has it",
                "all clients need the same columns; features=[…] names them",
                where=("features",),
            )


def _filled(
    table: Table, choice: Choice, facts: Survey, *, rows: int, missing: Missing
) -> Read:
    """Read a table for the second time, into arrays."""
    x = _room(choice.features, facts, rows, missing)
    columns = {name: _plain_room(facts.columns[name], rows) for name in choice.labels}
    keys = np.empty(rows, dtype=object)
    start = 0
    names = present(table, choice.names)
    for block in table.read(names):
        chosen = kept_rows(table, block, names, missing)
        end = start + int(chosen.sum())
        values = {
            name: values_of(block.columns[name][chosen], table.written)
            for name in names
        }
        _fill_features(x[start:end], choice.features, values, facts, missing)
        for name, room in columns.items():
            room[start:end] = _label(name, values[name], facts)
        if choice.key in values:
            keys[start:end] = _owners(values[choice.key])
        start = end
    return Read(
        x,
        _stacked(columns, choice, facts),
        keys if choice.key in names else None,
        columns=feature_names(choice.features, facts),
        class_names=facts.columns[choice.labels[0]].categories or (),
        offered=_offered(columns, keys, choice),
    )


def feature_names(features: Sequence[str], facts: Survey) -> tuple[str, ...]:
    """Return the names of the encoded features: ``age``, ``sex=f``, ``sex=m``."""
    names: list[str] = []
    for name in features:
        categories = facts.columns[name].categories
        if categories is None:
            names.append(name)
        else:
            names += [f"{name}={text}" for text in categories]
    return tuple(names)


def _room(
    features: Sequence[str], facts: Survey, rows: int, missing: Missing
) -> NDArray[Any]:
    """Return room for the features: (rows, d), or (rows, …) of one column of arrays."""
    chosen = [facts.columns[name] for name in features]
    arrays = [name for name in features if facts.columns[name].shape]
    if arrays:
        require(
            len(features) == 1,
            f"column {arrays[0]!r} holds arrays and cannot be joined with other columns",
            f"choose one: features=[{arrays[0]!r}]",
            where="features",
        )
        return blocks.room((rows, *chosen[0].shape), chosen[0].dtype)
    width = len(feature_names(features, facts))
    dtype: type[np.generic] = np.float64
    whole = all(column.whole and column.categories is None for column in chosen)
    if whole and isinstance(missing, str):
        dtype = np.int64
    elif rows * width * 8 > blocks.LARGE:
        dtype = np.float32
    return blocks.room((rows, width), dtype)


def _fill_features(
    x: NDArray[Any],
    features: Sequence[str],
    values: Mapping[str, Values],
    facts: Survey,
    missing: Missing,
) -> None:
    """Write the features of one block into ``x``."""
    if facts.columns[features[0]].shape:
        x[:] = values[features[0]].given
        return
    place = 0
    for name in features:
        categories = facts.columns[name].categories
        if categories is None:
            numbers = values[name].numbers
            assert numbers is not None
            x[:, place] = numbers
            if values[name].gaps.any():
                x[values[name].gaps, place] = missing
            place += 1
            continue
        texts = values[name].texts()
        for text in categories:
            x[:, place] = texts == text
            place += 1


def _plain_room(column: ColumnSurvey, rows: int) -> NDArray[Any]:
    """Return room for the labels of one column."""
    dtype: type[np.generic] = np.float64
    if column.categories is not None or column.whole:
        dtype = np.int64
    return np.empty((rows, *column.shape), dtype)


def _label(name: str, values: Values, facts: Survey) -> NDArray[Any]:
    """Return the labels of one block as numbers."""
    categories = facts.columns[name].categories
    if categories is None:
        assert values.numbers is not None
        return values.numbers
    numbers = {text: number for number, text in enumerate(categories)}
    return np.array([numbers[text] for text in values.texts()], dtype=np.int64)


def _owners(values: Values) -> NDArray[Any]:
    if values.numbers is not None:
        return values.numbers.astype(object)
    return values.texts()


def _stacked(
    columns: Mapping[str, NDArray[Any]], choice: Choice, facts: Survey
) -> NDArray[Any]:
    """Return the labels: (n,) of one column, (n, k) of several.

    Several columns of true and false stay truth values, so they are multi-label targets.
    """
    if len(choice.labels) == 1:
        return columns[choice.labels[0]]
    stacked = np.stack([columns[name] for name in choice.labels], axis=1)
    chosen = [facts.columns[name] for name in choice.labels]
    if all(column.truth and column.categories is None for column in chosen):
        return stacked.astype(np.bool_)
    return stacked


def _offered(
    columns: Mapping[str, NDArray[Any]], keys: NDArray[Any], choice: Choice
) -> dict[str, NDArray[Any]]:
    """Return labels and owners by the names of their columns."""
    offered = {name: values for name, values in columns.items() if values.ndim == 1}
    if choice.key:
        offered[choice.key] = keys
    return offered
