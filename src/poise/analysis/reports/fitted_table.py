"""A terminal table that leaves columns out rather than making them too narrow to read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import JustifyMethod
    from rich.table import Table

LABEL = 28
"""The number of characters that the column of labels gets at least, if they need them."""

LONGEST_WORD = 40
"""Words of labels up to this length stay whole, if that leaves room for two columns."""

NUMERIC = "0123456789+-—bn"
"""First characters of cells that stand on the right: numbers, "best" and "never"."""


@dataclass(frozen=True)
class FittedTable:
    """A table with the columns that fit, and the names of the others."""

    table: Table
    left_out: tuple[str, ...]


def fitted_table(
    heading: Sequence[str],
    body: Sequence[Sequence[str]],
    *,
    label: int,
    width: int,
    least: int = LABEL,
    caption: str = "",
) -> FittedTable:
    """Return a table with as many of the first columns as fit into the width.

    The column ``label`` takes what the others leave, and wraps at spaces. No other cell
    wraps; headings wrap at spaces. Columns at the end are left out while the labels have
    fewer than ``least`` characters.
    """
    from rich.table import Table
    from rich.text import Text

    widths = [_width(name, [row[k] for row in body]) for k, name in enumerate(heading)]
    longest = max([len(heading[label]), *(len(row[label]) for row in body)])
    words = [word for row in body for word in row[label].split()]
    whole = min(max(map(len, words), default=0), LONGEST_WORD)
    enough = min(longest, max(least, whole))
    shown = _fitting(widths, label=label, least=enough, width=width)
    rest = width - _taken(widths[:shown], label)
    table = Table(caption=caption or None, caption_justify="left")
    for k, name in enumerate(heading[:shown]):
        if k == label:
            table.add_column(Text(name), width=min(longest, rest), overflow="fold")
        else:
            numbers = all(row[k][:1] in NUMERIC for row in body)
            justify: JustifyMethod = "left"
            if numbers:
                justify = "right"
            table.add_column(Text(name), justify=justify, width=widths[k])
    for row in body:
        table.add_row(*(Text(cell) for cell in row[:shown]))
    return FittedTable(table, tuple(heading[shown:]))


def _width(name: str, cells: Sequence[str]) -> int:
    """Return the characters of a column: its longest cell, or word of its heading."""
    return max(map(len, [*name.split(), *cells]), default=0)


def _taken(widths: Sequence[int], label: int) -> int:
    """Return the characters of a table beside those of its column of labels."""
    others = sum(widths) - widths[label]
    return others + 3 * len(widths) + 1


def _fitting(widths: Sequence[int], *, label: int, least: int, width: int) -> int:
    """Return how many columns fit; at least two after the label."""
    shown = len(widths)
    while shown > label + 3 and width - _taken(widths[:shown], label) < least:
        shown -= 1
    return shown


__all__ = ["FittedTable", "fitted_table"]
