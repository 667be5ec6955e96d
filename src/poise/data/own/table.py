"""`Table`: named columns that are read in blocks of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from poise.core.errors import DataError
from poise.data import blocks


@dataclass(frozen=True, eq=False)
class Block:
    """Consecutive rows of a table.

    Args:
        columns: the values by column, (rows,) or (rows, …).
        first: number of the first row.
        lines: the line of each row in a text file, for errors; empty otherwise.
    """

    columns: Mapping[str, NDArray[Any]]
    first: int = 0
    lines: Sequence[int] = ()

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def place(self, row: int) -> str:
        """Return the place of a row of this block, for errors."""
        if len(self.lines):
            return f"line {self.lines[row]}"
        return f"row {self.first + row}"


@dataclass(frozen=True, eq=False)
class Table:
    """Named columns that are read in blocks, as often as needed.

    Args:
        name: of the file or object, for errors.
        names: of the columns.
        read: returns the blocks of the named columns, from the start.
        written: all values are texts as written in a file; the columns have no types.
        large: do not keep the values in memory.
    """

    name: str
    names: tuple[str, ...]
    read: Callable[[Sequence[str]], Iterator[Block]]
    written: bool = False
    large: bool = False

    def __post_init__(self) -> None:
        if "" in self.names:
            raise DataError(f"{self.name} has a column without a name")
        twice = sorted({name for name in self.names if self.names.count(name) > 1})
        if twice:
            count = self.names.count(twice[0])
            raise DataError(f"{self.name}: {count} columns have the name {twice[0]!r}")


def is_large(file: Path) -> bool:
    """Return whether the table of a file is converted to a mapped array in blocks."""
    return file.stat().st_size > blocks.LARGE


def whole(
    name: str, names: Sequence[str], column: Callable[[str], NDArray[Any]]
) -> Table:
    """Return a table in memory, whose columns a function returns.

    >>> whole("patients", ["age"], lambda name: np.array([61, 48])).names
    ('age',)
    """

    def read(wanted: Sequence[str]) -> Iterator[Block]:
        yield Block({one: column(one) for one in wanted})

    return Table(name, tuple(names), read)


def kept(table: Table, names: Sequence[str]) -> Table:
    """Return the named columns of a table, read once and kept in memory."""
    blocks = list(table.read(names))

    def read(wanted: Sequence[str]) -> Iterator[Block]:
        return iter(blocks)

    return Table(table.name, tuple(names), read, written=table.written)
