"""CSV files as tables."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from poise.core.errors import DataError
from poise.data.own.table import Block, Table, is_large

_ROWS = 65_536


def csv_table(file: Path) -> Table:
    """Return the table of a CSV file with a header; errors name the line."""
    with file.open(encoding="utf-8-sig", newline="") as stream:
        header = next(csv.reader(stream, strict=True), [])
    names = tuple(cell.strip() for cell in header)

    def read(wanted: Sequence[str]) -> Iterator[Block]:
        return _blocks(file, names, wanted)

    return Table(str(file), names, read, written=True, large=is_large(file))


def _blocks(file: Path, names: Sequence[str], wanted: Sequence[str]) -> Iterator[Block]:
    places = {name: names.index(name) for name in wanted}
    with file.open(encoding="utf-8-sig", newline="") as stream:
        rows = _rows(file, names, csv.reader(stream, strict=True))
        first = 0
        while block := list(islice(rows, _ROWS)):
            values = {
                name: np.array([cells[k].strip() for _, cells in block], dtype=object)
                for name, k in places.items()
            }
            yield Block(values, first, lines=[line for line, _ in block])
            first += len(block)


def _rows(
    file: Path, names: Sequence[str], lines: Iterator[list[str]]
) -> Iterator[tuple[int, list[str]]]:
    """Return line number and cells of the rows below the header; skip empty lines."""
    reader = lines
    next(reader, [])
    for cells in reader:
        if not cells:
            continue
        line = reader.line_num  # type: ignore[attr-defined]
        if len(cells) != len(names):
            raise DataError(
                f"{file}, line {line}: {len(cells)} values for {len(names)} columns"
            )
        yield line, cells
